// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>

#include "adapter/net/port.h"
#include "control/protocol/status_page.h"

namespace verbena::engine {

// A port's counters in the status page, so that the page's reader finds what is true now, and nothing has to
// be copied. From zero. REQUIRES: nothing else writes the page's port numbers
inline net::PortCounters& port_counters_in(protocol::StatusPage& page) {
  using net::PortCounters;
  constexpr size_t kNumber = sizeof(protocol::SharedNumber);
  static_assert(sizeof(PortCounters) <= sizeof page.port && alignof(PortCounters) <= kNumber);
  static_assert(offsetof(PortCounters, sent_packets) == protocol::kPortSentPackets * kNumber);
  static_assert(offsetof(PortCounters, sent_bytes) == protocol::kPortSentBytes * kNumber);
  static_assert(offsetof(PortCounters, received_packets) == protocol::kPortReceivedPackets * kNumber);
  static_assert(offsetof(PortCounters, received_bytes) == protocol::kPortReceivedBytes * kNumber);
  static_assert(offsetof(PortCounters, send_errors) == protocol::kPortSendErrors * kNumber);
  static_assert(offsetof(PortCounters, dropped) == protocol::kPortFirstDropReason * kNumber);
  return *new (page.port.data()) PortCounters;
}

}  // namespace verbena::engine
