// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::engine {

// Maximum number of memory regions and windows of a process, together.
inline constexpr uint32_t kMaxRegions = 1u << 23;

}  // namespace verbena::engine
