// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

#include "base/unique_fd.h"

namespace verbena::perf {

// Ends the process if the peer of a connection goes away while this object exists. Without the watch, a loop
// that polls memory or completion queues would never end. The process has a second to notice the loss
// elsewhere and to report more. Then it ends with status 1.
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
