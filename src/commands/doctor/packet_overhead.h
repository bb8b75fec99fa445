// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::commands::doctor {

// RoCEv2's maximum overhead in bytes per packet, as in control::path_mtu_of().
inline constexpr uint32_t kPacketOverhead = 80;

}  // namespace verbena::commands::doctor
