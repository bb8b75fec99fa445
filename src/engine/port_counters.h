// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>

#include "control/status_page.h"
#include "net/port.h"

namespace verbena::engine {

// A port's counters in the status page, so that whoever reads the page reads what is true now, and nobody has
// to copy. From zero. REQUIRES: nothing else writes the page's port numbers
inline net::PortCounters& port_counters_in(control::StatusPage& page) {
  using net::PortCounters;
  constexpr size_t kNumber = sizeof(control::SharedNumber);
  static_assert(sizeof(PortCounters) <= sizeof page.port && alignof(PortCounters) <= kNumber);
  static_assert(offsetof(PortCounters, sent_packets) == control::kPortSentPackets * kNumber);
  static_assert(offsetof(PortCounters, sent_bytes) == control::kPortSentBytes * kNumber);
  static_assert(offsetof(PortCounters, received_packets) == control::kPortReceivedPackets * kNumber);
  static_assert(offsetof(PortCounters, received_bytes) == control::kPortReceivedBytes * kNumber);
  static_assert(offsetof(PortCounters, send_errors) == control::kPortSendErrors * kNumber);
  static_assert(offsetof(PortCounters, dropped) == control::kPortFirstDropReason * kNumber);
  return *new (page.port.data()) PortCounters;
}

}  // namespace verbena::engine
