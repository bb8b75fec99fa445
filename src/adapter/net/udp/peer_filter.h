// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <linux/filter.h>

#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::net {

// A link that accepts packets only from the hosts in `peers`.
struct GuardedLink {
  uint32_t interface_index = 0;
  std::vector<roce::Address> addresses;  // of the link
  std::vector<roce::Prefix> peers;       // address ranges of the accepted hosts
};

// Makes a program for SO_ATTACH_FILTER on a socket of the RoCEv2 port. With the program, the kernel drops
// packets from hosts that are not accepted, before any process reads them. A packet concerns each link whose
// netdev received the packet, or whose address is the packet's destination. The program drops a packet if one
// of these links does not accept the packet's source. Loopback packets pass, because they are from this host.
// Returns an empty program if `links` is empty. If the program would exceed the kernel's limit of 4,096
// instructions, returns a program that drops all packets from other hosts.
std::vector<sock_filter> peer_filter(std::span<const GuardedLink> links);

}  // namespace verbena::net
