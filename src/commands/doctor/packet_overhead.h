// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::commands::doctor {

// The most bytes that RoCEv2 puts around a packet's payload, as control::path_mtu_of() reckons.
inline constexpr uint32_t kPacketOverhead = 80;

}  // namespace verbena::commands::doctor
