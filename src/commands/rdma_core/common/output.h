// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace verbena::rdma_core {

// The standard output of a program: either lines of text, or one JSON object at the end. The program provides
// both forms, and this class prints the one that the user chose.
class Output {
 public:
  explicit Output(bool json) : json_(json) {}

  bool json() const { return json_; }

  // Prints text with a printf(3) format, as in rdma-core's programs. Prints nothing if JSON is chosen.
  [[gnu::format(printf, 2, 3)]] void text(const char* format, ...) const;

  // Returns the JSON object, for the program to fill in.
  nlohmann::ordered_json& object() { return object_; }

  // Prints the JSON object if JSON is chosen. Call it only after success: a failed program prints no object.
  void finish() const;

 private:
  bool json_;
  nlohmann::ordered_json object_ = nlohmann::ordered_json::object();
};

}  // namespace verbena::rdma_core
