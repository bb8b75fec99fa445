// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

#include "base/unique_fd.h"

namespace verbena::perf {

// Ends the process with status 1 if the peer of a connection goes away while this object exists. Without the
// watch, a loop that polls memory or completion queues would never end. The watch first waits one second, in
// which the test may notice the loss itself and report more.
//
// Also ends the process if this object exists for longer than a limit, whatever the peer does meanwhile.
class HangupWatch {
 public:
  static constexpr std::chrono::milliseconds kNoLimit{-1};

  // `descriptor`: that of the connection, or -1 for no watch. REQUIRES: `descriptor` stays open while this
  // object exists
  explicit HangupWatch(int descriptor, std::chrono::milliseconds limit = kNoLimit);
  ~HangupWatch();

 private:
  void watch(int descriptor, std::chrono::milliseconds limit) const;

  UniqueFd stop_;
  std::jthread thread_;  // the last member: the thread uses stop_
};

}  // namespace verbena::perf
