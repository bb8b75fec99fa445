// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <pthread.h>

#include "base/own_fd.h"
#include "base/time.h"

namespace verbena::engine {

// A thread's observation of the demand for processors while it busy-polled.
struct Demand {
  bool looked = false;  // it has busy-polled and looked; if false, the rest means nothing
  bool wanted = false;  // other threads want the processors
  Duration lost{};      // for this long others had the processor that it ran on
};

// Tells whether a busy-polling thread takes a processor that other threads want. The fourth number
// of /proc/loadavg has the count of threads that run or wait for a processor now. Any user may read it. If
// this count exceeds the number of processors that this thread may use, some thread waits. So the demand
// shows before polling costs other threads time. wanted() keeps its answer for a while, since reading takes a
// microsecond. It answers "wanted" when two looks in a row say so. pause() also does if the thread lost its
// processor meanwhile.
//
// If the file cannot be read, the answer is "wanted". One thread at a time.
class ProcessorDemand {
 public:
  explicit ProcessorDemand(const char* path = "/proc/loadavg") : path_(path) { look_again(); }

  // Returns whether other threads want the processors. REQUIRES: the thread that busy-polls calls this
  // itself, because the count in /proc/loadavg includes it
  bool wanted(TimePoint now);
  // Relaxes for a moment, so that others can use what the caller polls, and checks the demand meanwhile.
  Demand pause();
  // For a child after fork(): closes the file.
  void abandon() { loadavg_.reset(); }

  // Returns the number of threads that run or wait, by the text of /proc/loadavg; -1: the text is malformed.
  static int runnable_in(std::string_view loadavg);

 private:
  // Counts the processors that this thread may use, and opens the file again if it is gone.
  void look_again();

  const char* const path_;
  OwnFd loadavg_;
  int processors_ = 0;
  pthread_t thread_{};  // the thread whose allowed processors were counted
  TimePoint looks_again_at_{};
  TimePoint valid_until_{};
  bool wanted_ = true;
  bool seems_wanted_ = true;  // the result of the last look alone
};

}  // namespace verbena::engine
