// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::engine {

// Maximum number of memory regions plus memory windows of a process: the size of its key table.
inline constexpr uint32_t kMaxRegions = 1u << 23;

}  // namespace verbena::engine
