// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/time.h"

namespace verbena::agent {

// Limits the number of log lines per time window: for each user, for all users together, and for the agent
// itself. So no user can bury other messages under lines that its programs cause. A window starts with the
// first line after the previous window. At its end, take_reports() returns how many lines of each user were
// dropped.
//
// For one thread at a time. Has no clock: the caller passes the time.
class LogLimit {
 public:
  struct Sizes {
    size_t of_user = 50;  // maximum number of lines in a window
    size_t of_all = 500;  // one limit for all users together, another for the agent itself
    size_t users = 100;   // maximum number of users per window; lines of further users are dropped
    Duration window = std::chrono::seconds(10);
  };

  LogLimit() = default;
  explicit LogLimit(const Sizes& sizes) : sizes_(sizes) {}

  // Counts a line, and returns whether it may be written. `user` is the user whose request caused the line,
  // or nullopt for the agent's own lines. REQUIRES: take_reports(now) was called before
  bool admits(std::optional<uid_t> user, TimePoint now);
  // If the window is over, ends it and returns its reports of dropped lines; else returns none.
  std::vector<std::string> take_reports(TimePoint now);
  // Returns when take_reports() has reports, or kNever if no line was dropped in this window.
  TimePoint report_due() const { return leaves_out_ ? end_ : kNever; }

 private:
  struct Count {
    size_t written = 0, left_out = 0;
  };
  Count* count_of(std::optional<uid_t> user);

  const Sizes sizes_{};
  std::map<std::optional<uid_t>, Count> counts_;  // in this window
  size_t written_of_users_ = 0;
  size_t left_out_of_others_ = 0;  // of users that are not counted separately
  bool leaves_out_ = false;
  TimePoint end_{};  // end of the window
};

}  // namespace verbena::agent
