// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

#include "base/unique_fd.h"

namespace verbena::perf {

// Ends the process if the peer of a connection has gone, while this exists. A loop that polls memory or
// completion queues would never end. The process has a second to notice it elsewhere, and to say more.
//
// Ends the process also if this exists for longer than a limit, whatever the peer does meanwhile.
class HangupWatch {
 public:
  static constexpr std::chrono::milliseconds kNoLimit{-1};

  // `descriptor` must stay open. Does nothing for -1.
  explicit HangupWatch(int descriptor, std::chrono::milliseconds limit = kNoLimit);
  ~HangupWatch();

 private:
  void watch(int descriptor, std::chrono::milliseconds limit) const;

  UniqueFd stop_;
  std::jthread thread_;  // the last member: it uses the other
};

}  // namespace verbena::perf
