// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <linux/filter.h>

#include "wire/ethernet/steering.h"

namespace verbena::net {

using FilterProgram = std::vector<sock_filter>;

// SO_MARK of the frames that raw QPs send. The packet sockets of a device also see the frames that this host
// sends, and a FlowFilter passes only those with this mark. So raw QPs of other processes on the same device
// receive these frames if a flow rule matches, as they do with a hardware adapter.
inline constexpr uint32_t kRawFrameMark = 0x5eba0e7a;

// A classic BPF program for a packet socket. In the kernel, the program drops frames that match no flow rule
// of a steering table. The program may pass too many frames (VLAN tags of unknown type, more rules than fit a
// program), never too few. Outgoing frames pass only if they have kRawFrameMark.
struct FlowFilter {
  FilterProgram program;
  bool exact;  // false if there are too many rules, so all incoming frames pass
};
FlowFilter make_flow_filter(const ethernet::SteeringTable& table);

// Make programs that pass no frame (closed) or all frames (open).
FilterProgram make_closed_filter();
FilterProgram make_open_filter();

}  // namespace verbena::net
