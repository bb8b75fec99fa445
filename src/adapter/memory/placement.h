// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/memory/region.h"

namespace verbena::memory {

// Memory placement extensions (IBTA volume 1 release 1.5, annex A19), of which the verbs.h that we build with
// knows half. Numbers are those of later ones.

// Rights (enum ibv_access_flags): of a region and of a QP, to have FLUSH carried out.
inline constexpr Access kFlushGlobal = 1u << 8;      // IBV_ACCESS_FLUSH_GLOBAL
inline constexpr Access kFlushPersistent = 1u << 9;  // IBV_ACCESS_FLUSH_PERSISTENT

// A FLUSH's placement types, a set (annex A19.3.1; enum ibv_placement_type) ...
inline constexpr uint8_t kPlacementGlobal = 1 << 0;
inline constexpr uint8_t kPlacementPersistent = 1 << 1;
// ... and its selectivity (enum ibv_selectivity_level).
inline constexpr uint8_t kSelectRange = 0;
inline constexpr uint8_t kSelectRegion = 1;

// The rights that placement types need.
constexpr Access flush_access(uint8_t placement) {
  return ((placement & kPlacementGlobal) != 0 ? kFlushGlobal : 0) |
         ((placement & kPlacementPersistent) != 0 ? kFlushPersistent : 0);
}

// What was written before is visible to everyone who can see the memory.
void make_visible();

}  // namespace verbena::memory
