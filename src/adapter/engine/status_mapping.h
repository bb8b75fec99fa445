// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "adapter/net/port.h"
#include "base/result.h"
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

// The page that `verbena status` reads, as a process has it to write.
class StatusMapping {
 public:
  // Of the agent's file. What the file cannot be trusted with is private memory, all of it if need be.
  static Result<std::unique_ptr<StatusMapping>> create(int fd);
  explicit StatusMapping(protocol::StatusPage* page) : page_(page) {}
  ~StatusMapping();
  StatusMapping(const StatusMapping&) = delete;
  StatusMapping& operator=(const StatusMapping&) = delete;

  protocol::StatusPage& page() { return *page_; }
  // Private from now on: what a child does to its inherited QPs is not to be seen in its parent's.
  void detach();

 private:
  protocol::StatusPage* const page_;
};

}  // namespace verbena::engine
