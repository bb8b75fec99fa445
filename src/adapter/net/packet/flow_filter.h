// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <linux/filter.h>

#include "wire/ethernet/steering_table.h"

namespace verbena::net {

using FilterProgram = std::vector<sock_filter>;

// Frames that raw QPs of other processes send through the same device carry this mark (SO_MARK). A network
// adapter hands such frames to the QPs that have a rule for them, as if they had come from the wire.
inline constexpr uint32_t kRawFrameMark = 0x5eba0e7a;

// A classic BPF program for a packet socket that drops in the kernel what no rule of the table wants; it may
// let pass more (VLAN tags that we know no type of, rules too many for a program), never less. Of what leaves
// through the device it looks at marked frames only.
struct FlowFilter {
  FilterProgram program;
  bool exact;  // false: the rules were too many, and everything passes
};
FlowFilter make_flow_filter(const ethernet::SteeringTable& table);

// Lets nothing pass; and everything.
FilterProgram make_closed_filter();
FilterProgram make_open_filter();

}  // namespace verbena::net
