// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace verbena::rdma_core {

// What a program says on standard output: lines of text, or at its end one JSON object and nothing else. The
// program says both, and this lets through what was asked for.
class Output {
 public:
  explicit Output(bool json) : json_(json) {}

  bool json() const { return json_; }

  // Lines for people, in the form of printf(3), which is that of the originals.
  [[gnu::format(printf, 2, 3)]] void text(const char* format, ...) const;

  // The object.
  nlohmann::ordered_json& object() { return object_; }

  // Prints the object, if that was asked for. A program that failed does not call it: half an answer is none.
  void finish() const;

 private:
  bool json_;
  nlohmann::ordered_json object_ = nlohmann::ordered_json::object();
};

}  // namespace verbena::rdma_core
