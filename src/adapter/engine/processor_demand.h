// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <pthread.h>

#include "base/own_fd.h"
#include "base/time.h"

namespace verbena::engine {

// What a thread that asks on has noticed of the processors.
struct Demand {
  bool looked = false;  // it has asked on, and looked
  bool wanted = false;  // others want them
  Duration lost{};      // and have had the one it ran on for so long
};

// Whether a thread that spins takes a processor that others want. The kernel tells, without privilege, how
// many threads run or wait for a processor at this very moment: the fourth figure of /proc/loadavg (the first
// three are means over minutes). There is no need to spin for them to lose by it: if they are more than the
// processors this thread may use, one of them waits. Reading it takes a microsecond, so the answer is kept
// for a while; that they are wanted, when two looks in a row have said so.
//
// Where that file is not to be read, the answer is that they are wanted. One thread's at a time.
class ProcessorDemand {
 public:
  explicit ProcessorDemand(const char* path = "/proc/loadavg") : path_(path) { look_again(); }

  // REQUIRES: the caller is running, and so is one of those counted
  bool wanted(TimePoint now);
  // Leaves what it asks to others for a moment, and looks meanwhile.
  Demand pause();
  // In a child after fork().
  void abandon() { loadavg_.reset(); }

  // How many threads run or want to, by the text of /proc/loadavg; -1: it does not say.
  static int runnable_in(std::string_view loadavg);

 private:
  // Counts the processors that this thread may use, and opens the file again if it is gone.
  void look_again();

  const char* const path_;
  OwnFd loadavg_;
  int processors_ = 0;
  pthread_t thread_{};  // whose processors they are
  TimePoint looks_again_at_{};
  TimePoint valid_until_{};
  bool wanted_ = true;
  bool seems_wanted_ = true;  // by the last look
};

}  // namespace verbena::engine
