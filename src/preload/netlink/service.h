// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "control/model/admin_error.h"
#include "control/model/agent_status.h"
#include "preload/netlink/message.h"

namespace verbena::rdma_netlink {

// The netlink Service lists, adds, deletes and renames devices through this interface. The `rdma` command
// implements it by requests to the agent (commands/rdma/agent_system.h).
class Devices {
 public:
  virtual ~Devices() = default;
  virtual control::AdminResult<control::AgentStatus> status() = 0;
  virtual control::AdminResult<void> add_link(std::string_view name, std::string_view netdev) = 0;
  virtual control::AdminResult<void> delete_link(std::string_view name) = 0;
  virtual control::AdminResult<void> rename_link(std::string_view name, std::string_view new_name) = 0;
};

// Responds to requests on NETLINK_RDMA sockets for Verbena's devices, in place of the kernel's RDMA
// subsystem. Performs no I/O except in `devices`. Not thread-safe.
//
// Supports the commands of RDMA_NL_NLDEV, which iproute2's `rdma` uses. Like the kernel, responds with
// EOPNOTSUPP to commands without meaning for Verbena, and with EINVAL to unknown commands.
class Service {
 public:
  explicit Service(Devices& devices) : devices_(devices) {}

  // Carries out the requests in `datagram`, which came from the socket with netlink port `port`. Returns the
  // datagrams to send back to that socket, in this order. Like the kernel, ignores messages that are not
  // requests.
  std::vector<Bytes> answer(std::span<const std::byte> datagram, uint32_t port);

 private:
  Devices& devices_;
};

}  // namespace verbena::rdma_netlink
