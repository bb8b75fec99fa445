// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>

#include <sys/types.h>

namespace verbena::agent {

// Marks this thread as acting for a user while the object exists. Lines that the thread logs count against
// the user's share of the log (LogLimit).
class ActingFor {
 public:
  explicit ActingFor(uid_t user) : before_(std::exchange(current_, user)) {}
  ~ActingFor() { current_ = before_; }
  ActingFor(const ActingFor&) = delete;
  ActingFor& operator=(const ActingFor&) = delete;

  // Returns the user for whom this thread acts, or nullopt if the thread acts for the agent itself.
  static std::optional<uid_t> user() { return current_; }

 private:
  static inline thread_local std::optional<uid_t> current_;
  const std::optional<uid_t> before_;
};

}  // namespace verbena::agent
