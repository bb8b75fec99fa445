// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace verbena {

// The cache line size in bytes. Two processors cannot write to one line at the same time. Data that is
// written for each message begins on a line of its own, alignas(kCacheLine), so that unrelated threads do not
// wait for each other (false sharing).
//
// (std::hardware_destructive_interference_size depends on compiler options and may differ between two files
// of one program.)
inline constexpr size_t kCacheLine = 64;

}  // namespace verbena
