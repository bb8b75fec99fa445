// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena {

// What two processors cannot write at the same time. Whatever is written for each message begins on a line of
// its own, so that threads which share nothing do not wait for each other: alignas(kCacheLine).
//
// (std::hardware_destructive_interference_size depends on how the compiler is called, and may differ between
// two files of one program.)
inline constexpr size_t kCacheLine = 64;

}  // namespace verbena
