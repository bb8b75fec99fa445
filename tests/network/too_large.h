// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "network/super_frame.h"

namespace verbena::network {

// Returns a router's answer to a packet larger than the next link's MTU, as an Ethernet frame: ICMP
// "fragmentation needed" (RFC 1191) or ICMPv6 "packet too big" (RFC 4443, 3.2). Its source is the packet's
// destination, since the emulated router has no address. Empty for packets that routers do not answer, such
// as multicast.
std::vector<std::byte> too_large_answer(const SuperFrame& frame, uint32_t mtu);

}  // namespace verbena::network
