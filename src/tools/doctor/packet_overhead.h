// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::tools::doctor {

// The most bytes that RoCEv2 puts around a packet's payload, as agent_client::path_mtu_of() reckons.
inline constexpr uint32_t kPacketOverhead = 80;

}  // namespace verbena::tools::doctor
