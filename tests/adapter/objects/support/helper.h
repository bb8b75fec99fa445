// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>
#include <sys/types.h>

#include "base/unique_fd.h"

namespace verbena::adapter::testing {

// The test's end of a connection to its helper process. Carries trivially copyable structs, one at a time.
class Line {
 public:
  explicit Line(UniqueFd fd) : fd_(std::move(fd)) {}

  template <class Message>
  void tell(const Message& message) {
    static_assert(std::is_trivially_copyable_v<Message>);
    EXPECT_TRUE(write_all(&message, sizeof message));
  }
  // Receives a message. If the other end is gone, fails the test and returns all zeros.
  template <class Message>
  Message hear() {
    static_assert(std::is_trivially_copyable_v<Message>);
    Message message{};
    EXPECT_TRUE(read_all(&message, sizeof message)) << "the other end is gone";
    return message;
  }
  // Waits until the other end closes.
  void await_end();
  int fd() const { return fd_.get(); }

 private:
  bool write_all(const void* from, size_t bytes);
  bool read_all(void* to, size_t bytes);

  UniqueFd fd_;
};

// A child process that executes this test program again and runs a registered body with the other end of a
// line.
class Helper {
 public:
  static Helper start(const std::string& name);
  ~Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  Line& line() { return line_; }
  pid_t pid() const { return pid_; }
  void kill(int signal);
  // Returns the status as waitpid(2) gives it: 0 if the body returned without a failure.
  int wait();

 private:
  Helper(pid_t pid, UniqueFd line) : pid_(pid), line_(std::move(line)) {}

  pid_t pid_;
  Line line_;
};

// Static objects of this type register the bodies of helpers by name.
struct HelperBody {
  HelperBody(const std::string& name, std::function<void(Line&)> body);
};

// If the program was started as a helper, runs its body and returns the exit status.
std::optional<int> run_helper(int argc, char** argv);

}  // namespace verbena::adapter::testing
