// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "network/super_frame.h"

namespace verbena::network {

// What a router sends back for a packet larger than the next link takes: ICMP "fragmentation needed" (RFC
// 1191) or ICMPv6 "packet too big" (RFC 4443, 3.2), as an Ethernet frame. It seems to come from the
// destination, as the emulated router has no address of its own. Empty for what no router answers, such as
// multicast.
std::vector<std::byte> too_large_answer(const SuperFrame& frame, uint32_t mtu);

}  // namespace verbena::network
