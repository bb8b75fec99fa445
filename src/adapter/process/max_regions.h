// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::engine {

// Memory regions and windows that a process has room for, together.
inline constexpr uint32_t kMaxRegions = 1u << 23;

}  // namespace verbena::engine
