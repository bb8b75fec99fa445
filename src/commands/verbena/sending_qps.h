// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/time.h"
#include "base/unique_fd.h"
#include "wire/roce/qpn.h"

namespace verbena::commands {

// Which queue pair of a slot sends to another, which the packets of connected ones do not say: the slot's
// status page does. What is found holds for a second; a queue pair that is connected again in that time may
// be taken for the one before.
class SendingQps {
 public:
  explicit SendingQps(UniqueFd status_page) : page_(std::move(status_page)) {}

  // 0: there is none that is known.
  roce::Qpn that_sends_to(roce::Qpn destination, TimePoint now);

 private:
  void refresh(TimePoint now);

  const UniqueFd page_;
  std::unordered_map<uint32_t, roce::Qpn> by_destination_;
  TimePoint read_at_ = TimePoint::min();
};

}  // namespace verbena::commands
