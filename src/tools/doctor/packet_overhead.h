// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::tools::doctor {

// What RoCEv2 puts around a packet's payload, at most; as agent_client::path_mtu_of() reckons.
inline constexpr uint32_t kPacketOverhead = 80;

}  // namespace verbena::tools::doctor
