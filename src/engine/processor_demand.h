// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/own_fd.h"
#include "base/time.h"

namespace verbena::engine {

// Whether a thread that spins takes a processor that others want. The kernel tells, without privilege, how
// many threads run or wait for a processor at this very moment: the fourth figure of /proc/loadavg (the first
// three are means over minutes). There is no need to spin for them to lose by it: if they are more than the
// processors this thread may use, one of them waits. Reading it takes a microsecond, so the answer is kept
// for a while.
//
// Where that file is not to be read, the answer is that they are wanted. One thread's.
class ProcessorDemand {
 public:
  explicit ProcessorDemand(const char* path = "/proc/loadavg") : path_(path) { look_again(); }

  // Counts the processors that this thread may use, and opens the file again if it is gone.
  void look_again();
  // REQUIRES: the caller is running, and so is one of those counted
  bool wanted(TimePoint now);
  // In a child after fork().
  void abandon() { loadavg_.reset(); }

  // How many threads run or want to, by the text of /proc/loadavg; -1: it does not say.
  static int runnable_in(std::string_view loadavg);

 private:
  const char* const path_;
  OwnFd loadavg_;
  int processors_ = 0;
  TimePoint valid_until_{};
  bool wanted_ = true;
};

}  // namespace verbena::engine
