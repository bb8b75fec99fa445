// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "agent/links/link_table.h"
#include "base/result.h"

struct mnl_socket;

namespace verbena::agent {

// Tells a LinkTable what the kernel says of netdevs and addresses (rtnetlink).
class NetlinkMonitor {
 public:
  explicit NetlinkMonitor(LinkTable& table) : table_(table) {}

  // Subscribes first and then asks for all there is, so that nothing falls between.
  Result<void> start();
  int fd() const;
  // Takes what has arrived. When the kernel had to drop some of it (ENOBUFS), asks for everything again.
  void receive();

 private:
  struct Closer {
    void operator()(mnl_socket* socket) const;
  };
  using Socket = std::unique_ptr<mnl_socket, Closer>;

  static Result<Socket> open(unsigned groups);
  Result<void> dump();
  Result<void> dump_one(mnl_socket* socket, unsigned type, unsigned sequence);

  LinkTable& table_;
  Socket events_;
};

}  // namespace verbena::agent
