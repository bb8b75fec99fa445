// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/links/link_table.h"
#include "agent/links/netlink_attributes.h"
#include "base/result.h"

namespace verbena::agent {

// Reads the kernel's netdevs and IP addresses by rtnetlink, and reports them to a LinkTable.
class NetlinkMonitor {
 public:
  explicit NetlinkMonitor(LinkTable& table) : table_(table) {}

  // Subscribes to events, then reads all netdevs and addresses (a dump) into the table. In this order no
  // event is missed.
  Result<void> start();
  int fd() const;
  // Reports the events that have arrived to the table, at most 64 datagrams per call, without waiting for
  // more. Requests a new dump if the kernel has dropped events (ENOBUFS).
  void receive();

 private:
  Result<void> dump();
  Result<void> dump_one(unsigned type);

  LinkTable& table_;
  NetlinkSocket events_;
  // Socket for dumps. It stays open while dumps succeed, because closing a netlink socket waits for a lock of
  // the kernel that other users can hold for long.
  NetlinkSocket queries_;
  unsigned sequence_ = 0;
};

}  // namespace verbena::agent
