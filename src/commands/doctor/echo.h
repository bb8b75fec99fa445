// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/socket.h>

#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::commands::doctor {

// Asks a host for ICMP echoes, to find out whether it is there and which packets fit on the way. Packets are
// not fragmented, and what the kernel has heard of the path before does not count (IP_PMTUDISC_PROBE).
class Echo {
 public:
  // EACCES, EPERM: this user may not send ICMP (net.ipv4.ping_group_range).
  static Result<Echo> open(const sockaddr_storage& destination);

  // Whether an IP packet of this size, with all its headers, comes back; `tries` times as long as `patience`.
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
