// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <infiniband/verbs.h>
#include <nlohmann/json.hpp>

namespace verbena::rdma_core {

// These functions print an error as one line on standard error. The line begins with the text of rdma-core's
// program, so that scripts recognize it. The reason and the remedy follow.

// Prints "SENTENCE" or "SENTENCE (REMEDY)".
void complain(const std::string& sentence, const std::string& remedy = {});

// Prints "SENTENCE: STRERROR" or "SENTENCE: STRERROR (REMEDY)" for the errno `error`.
void complain_of(int error, const std::string& sentence, const std::string& remedy = {});

// Formats a GID as inet_ntop(3) formats an IPv6 address.
std::string gid_text(const ibv_gid& gid);

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
