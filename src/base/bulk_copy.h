// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace verbena {

// Whether memcpy() between these addresses is slow from about 2 KiB on, where glibc copies with `rep movsb`.
// On AMD's Zen 3 `rep movsb` takes twenty times as long if the destination's page offset is 1 to 31 bytes
// above the source's. (Measured in cache: 2.9 GB/s instead of 50.) Copies between our page-aligned memory and
// an application's memory from malloc() have such offsets.
inline bool is_slow_in_bulk(const void* to, const void* from) {
  constexpr uintptr_t kPageBytes = 4096;
  const uintptr_t after = reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
  return (after - 1) % kPageBytes < 31;
}

// The size in bytes up to which memcpy() certainly uses vector instructions. (glibc begins with `rep movsb`
// at 2,112 bytes on Zen 3.)
inline constexpr size_t kBulkPieceBytes = 2048;

// Copies by memcpy() calls of at most kBulkPieceBytes each, so that none uses `rep movsb`.
[[gnu::noinline]] __attribute__((no_sanitize("nonnull-attribute"))) inline void copy_in_pieces(
    std::byte* to, const std::byte* from, size_t bytes) {
  while (bytes > 0) {
    size_t piece = std::min(bytes, kBulkPieceBytes);
    // Hides the size from the compiler. If the compiler knew that the size is small, it would emit `rep
    // movsq` instead of the call, which is as slow as `rep movsb`.
    asm("" : "+r"(piece));
    std::memcpy(to, from, piece);
    to += piece;
    from += piece;
    bytes -= piece;
  }
}

// memcpy() for possibly large copies: avoids the slow case of is_slow_in_bulk(). Null pointers are allowed,
// since callers handle the resulting fault (adapter/memory/guarded.h).
__attribute__((no_sanitize("nonnull-attribute"))) inline void copy_bulk(std::byte* to, const std::byte* from,
                                                                        size_t bytes) {
  if (bytes > kBulkPieceBytes && is_slow_in_bulk(to, from)) [[unlikely]]
    return copy_in_pieces(to, from, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace verbena
