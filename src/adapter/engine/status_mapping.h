// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "adapter/net/port.h"
#include "base/result.h"
#include "control/protocol/status_page.h"

namespace verbena::engine {

// Creates the port's counters in the status page, all zero. The shard counts there directly, so the page's
// reader sees the current numbers. REQUIRES: nothing else writes the page's port numbers
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

// The status page (`verbena status` reads it), mapped writable in this process.
class StatusMapping {
 public:
  // Maps the agent's file. A file that is too short, or whose size is not sealed, could lose parts of the
  // page later. These parts, perhaps the whole page, become private memory, which the agent does not see.
  // Errors: the kernel's.
  static Result<std::unique_ptr<StatusMapping>> create(int fd);
  explicit StatusMapping(protocol::StatusPage* page) : page_(page) {}
  ~StatusMapping();
  StatusMapping(const StatusMapping&) = delete;
  StatusMapping& operator=(const StatusMapping&) = delete;

  protocol::StatusPage& page() { return *page_; }
  // Makes the page private. For a child after fork(), whose inherited QPs must not change the parent's page.
  void detach();

 private:
  protocol::StatusPage* const page_;
};

}  // namespace verbena::engine
