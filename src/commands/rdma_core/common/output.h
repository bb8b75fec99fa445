// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
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

// An exception that ends the program. Thrown after the reason was printed. main() exits with `status`.
struct Failure {
  int status = 1;
};

// Returns 0, or the exit status if `action` throws a Failure.
template <class Action>
int status_of(const Action& action) {
  try {
    action();
    return 0;
  } catch (const Failure& failure) {
    return failure.status;
  }
}

// Print a message as complain() and complain_of() do, and throw a Failure.
[[noreturn]] void fail(const std::string& sentence, const std::string& remedy = {});
[[noreturn]] void fail_of(int error, const std::string& sentence, const std::string& remedy = {});

// Fails with `sentence` if a call of libibverbs has returned an errno.
inline void check(int error, const std::string& sentence) {
  if (error != 0) fail_of(error, sentence);
}

// Formats a GID as inet_ntop(3) formats an IPv6 address.
std::string gid_text(const ibv_gid& gid);

// A number, such as an enumerator or an errno, and a text for it.
struct Name {
  int value;
  const char* text;
};

// Returns the text for `value`, or `unknown` if there is none.
const char* name_of(std::span<const Name> names, int value, const char* unknown);

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
