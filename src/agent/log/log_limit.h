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

// Limits how much each user makes the agent log in a time, and all users together, so that nobody hides what
// others are told by lines of their own. The agent's own lines have a limit of their own. A window of time
// begins with a line, and at its end there is a sentence for each user whose lines were left out.
//
// One thread at a time; knows no clock.
class LogLimit {
 public:
  struct Sizes {
    size_t of_user = 50;  // lines in a window
    size_t of_all = 500;  // of all users together; likewise of the agent
    size_t users = 100;   // that are told apart in a window; of others nothing is written
    Duration window = std::chrono::seconds(10);
  };

  LogLimit() = default;
  explicit LogLimit(const Sizes& sizes) : sizes_(sizes) {}

  // Whether a line of this user's may be written. None: the agent's own. REQUIRES: take_reports(now) came
  // first
  bool admits(std::optional<uid_t> user, TimePoint now);
  // Sentences about the window that is over by now.
  std::vector<std::string> take_reports(TimePoint now);
  // When there will be some; kNever: nothing was left out.
  TimePoint report_due() const { return leaves_out_ ? end_ : kNever; }

 private:
  struct Count {
    size_t written = 0, left_out = 0;
  };
  Count* count_of(std::optional<uid_t> user);

  const Sizes sizes_{};
  std::map<std::optional<uid_t>, Count> counts_;  // of this window
  size_t written_of_users_ = 0;
  size_t left_out_of_others_ = 0;  // of users who are not told apart
  bool leaves_out_ = false;
  TimePoint end_{};  // of the window
};

}  // namespace verbena::agent
