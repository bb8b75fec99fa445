// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/time.h"
#include "base/unique_fd.h"
#include "wire/roce/qpn.h"

namespace verbena::commands {

// Finds the sender of a captured packet: the queue pair of one slot that sends to a given queue pair. Packets
// of connected QPs do not name their source QP, so it is looked up in the slot's status page. Results are
// cached for a second. A QP that is reconnected within that time may be mistaken for the former one.
class SendingQps {
 public:
  explicit SendingQps(UniqueFd status_page) : page_(std::move(status_page)) {}

  // Returns the number of the queue pair that sends to `destination`, or 0 if it is unknown.
  roce::Qpn that_sends_to(roce::Qpn destination, TimePoint now);

 private:
  void refresh(TimePoint now);

  const UniqueFd page_;
  std::unordered_map<uint32_t, roce::Qpn> by_destination_;
  TimePoint read_at_ = TimePoint::min();
};

}  // namespace verbena::commands
