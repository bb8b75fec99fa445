// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::commands::doctor {

// The largest number of header bytes that RoCEv2 adds to a packet's payload, as in control::path_mtu_of(). A
// path MTU fits a network device whose MTU is at least this much larger.
inline constexpr uint32_t kPacketOverhead = 80;

}  // namespace verbena::commands::doctor
