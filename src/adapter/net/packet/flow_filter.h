// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <linux/filter.h>

#include "wire/ethernet/steering_table.h"

namespace verbena::net {

using FilterProgram = std::vector<sock_filter>;

// SO_MARK of the frames that raw QPs send. Packet sockets of other processes on the same device accept marked
// outgoing frames: a network adapter, too, passes such frames to the QPs that have a rule for them.
inline constexpr uint32_t kRawFrameMark = 0x5eba0e7a;

// A classic BPF program for a packet socket that drops, in the kernel, the frames that no rule of a table
// wants. It may pass too many frames (VLAN tags of unknown type, more rules than fit a program), never too
// few. Among outgoing frames it passes marked ones only.
struct FlowFilter {
  FilterProgram program;
  bool exact;  // false: too many rules for a program, so all incoming frames pass
};
FlowFilter make_flow_filter(const ethernet::SteeringTable& table);

// Programs that pass no frame and all frames.
FilterProgram make_closed_filter();
FilterProgram make_open_filter();

}  // namespace verbena::net
