// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/socket.h>

#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::commands::doctor {

// Sends ICMP echo requests to a host, to find out whether it is up and which packet sizes the path carries.
// Packets are not fragmented, and the kernel's cached path MTU is ignored (IP_PMTUDISC_PROBE).
class Echo {
 public:
  // Opens a socket for `destination`. Fails with EACCES or EPERM if this user may not send ICMP
  // (net.ipv4.ping_group_range).
  static Result<Echo> open(const sockaddr_storage& destination);

  // Whether the host answers an IP packet of `packet_bytes`, IP and ICMP headers included. Sends up to
  // `tries` requests and waits `patience` for each reply.
  bool comes_back(size_t packet_bytes, int tries, Duration patience);

 private:
  Echo(const sockaddr_storage& destination, UniqueFd socket, bool is_raw);

  bool send(size_t packet_bytes);
  bool await(Duration patience);

  sockaddr_storage destination_;
  UniqueFd socket_;
  bool is_raw_;
  uint16_t id_;
  uint16_t sequence_ = 0;
};

}  // namespace verbena::commands::doctor
