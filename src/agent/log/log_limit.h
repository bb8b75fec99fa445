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

// Limits the log lines per time window: of each user, of all users together, and of the agent itself. So no
// user can hide messages to others behind lines of its own. A window starts with a line. At its end there is
// a report for each user with dropped lines.
//
// For one thread at a time. Has no clock.
class LogLimit {
 public:
  struct Sizes {
    size_t of_user = 50;  // maximum number of lines in a window
    size_t of_all = 500;  // of all users together, and of the agent itself
    size_t users = 100;   // maximum number of users counted separately; lines of others are dropped
    Duration window = std::chrono::seconds(10);
  };

  LogLimit() = default;
  explicit LogLimit(const Sizes& sizes) : sizes_(sizes) {}

  // Whether a line of this user may be written. No user: the agent's own line. REQUIRES: take_reports(now)
  // was called before
  bool admits(std::optional<uid_t> user, TimePoint now);
  // Returns the reports about the window if it is over.
  std::vector<std::string> take_reports(TimePoint now);
  // Returns when the next reports are due; kNever: no line was dropped.
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
