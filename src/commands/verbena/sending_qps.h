// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/time.h"
#include "base/unique_fd.h"
#include "wire/roce/qpn.h"

namespace verbena::commands {

// Finds the queue pair of a slot that sends to a given one. Packets of connected QPs do not name their source
// QP, so it reads the slot's status page. Results are cached for a second, so a QP that is reconnected within
// that time may be mistaken for the former one.
class SendingQps {
 public:
  explicit SendingQps(UniqueFd status_page) : page_(std::move(status_page)) {}

  // Returns the number of the queue pair that sends to `destination`; 0 if unknown.
  roce::Qpn that_sends_to(roce::Qpn destination, TimePoint now);

 private:
  void refresh(TimePoint now);

  const UniqueFd page_;
  std::unordered_map<uint32_t, roce::Qpn> by_destination_;
  TimePoint read_at_ = TimePoint::min();
};

}  // namespace verbena::commands
