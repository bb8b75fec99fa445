// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/region.h"

namespace verbena::memory {

// Memory placement extensions (IBTA volume 1 release 1.5, annex A19). The verbs.h that we build with has only
// half of them; the numbers are those of later versions.

// Access flags (enum ibv_access_flags) that a region and a QP need for FLUSH.
inline constexpr Access kFlushGlobal = 1u << 8;      // IBV_ACCESS_FLUSH_GLOBAL
inline constexpr Access kFlushPersistent = 1u << 9;  // IBV_ACCESS_FLUSH_PERSISTENT

// Placement types of a FLUSH, a set (annex A19.3.1; enum ibv_placement_type).
inline constexpr uint8_t kPlacementGlobal = 1 << 0;
inline constexpr uint8_t kPlacementPersistent = 1 << 1;
// Selectivity of a FLUSH (enum ibv_selectivity_level).
inline constexpr uint8_t kSelectRange = 0;
inline constexpr uint8_t kSelectRegion = 1;

// The access flags that placement types need.
constexpr Access flush_access(uint8_t placement) {
  return ((placement & kPlacementGlobal) != 0 ? kFlushGlobal : 0) |
         ((placement & kPlacementPersistent) != 0 ? kFlushPersistent : 0);
}

// Makes this thread's earlier writes visible to everyone that can see the memory.
void make_visible();

}  // namespace verbena::memory
