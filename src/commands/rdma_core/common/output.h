// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace verbena::rdma_core {

// The standard output of a program: either lines of text, or one JSON object at the end. The program provides
// both, and this class prints the form that the user chose.
class Output {
 public:
  explicit Output(bool json) : json_(json) {}

  bool json() const { return json_; }

  // Prints a line for people, with a printf(3) format as in rdma-core's programs.
  [[gnu::format(printf, 2, 3)]] void text(const char* format, ...) const;

  // The JSON object, to be filled in.
  nlohmann::ordered_json& object() { return object_; }

  // Prints the JSON object, if chosen. A program that failed does not call it, so as not to print half an
  // answer.
  void finish() const;

 private:
  bool json_;
  nlohmann::ordered_json object_ = nlohmann::ordered_json::object();
};

}  // namespace verbena::rdma_core
