// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "soak/pattern.h"

namespace verbena::soak {

// A connection's window into memory: cells of one size. The first is for atomics; each other is written by
// the other end, and read back.
inline constexpr uint32_t kCells = 8;
inline constexpr uint32_t kDepth = 16;         // requests of one end under way, and receives of one QP
inline constexpr uint32_t kMaxMessage = 8192;  // longest SEND; the length of a receive buffer
inline constexpr uint32_t kSmallCell = 8192;
inline constexpr uint32_t kLooseBytes = 64 * 1024;  // behind the cells
inline constexpr uint32_t kLargeCell = 128 * 1024;  // many packets even by memory

// What the ends tell each other when they connect, as private data. 56 bytes is all that a REQ has.
struct Greeting {
  uint32_t process;  // which of the test's
  uint32_t cell_bytes;
  uint64_t seed;  // of what it will send
  uint64_t window;
  uint64_t tally;  // a counter that all connections of the process add to
  uint32_t window_key;
  uint32_t tally_key;
  uint32_t uc_qpn;
  uint32_t ud_qpn;
  uint32_t uc_key;  // of the window with what is behind its cells, which UC may write to
  uint32_t reserved;
};
static_assert(sizeof(Greeting) == 56);

// The n-th message of an end. Both ends know it, so that the receiver knows what to expect to the last byte.
struct Message {
  uint32_t bytes;
  uint32_t immediate;
  bool has_immediate;
  bool is_write;  // RDMA WRITE with immediate, into `cell`
  bool has_key;   // the immediate data is the key of a memory window, which is the other's to use from now on
  uint32_t cell;
  uint64_t pattern;
};

inline Message message(uint64_t seed, uint64_t n, uint32_t cell_bytes) {
  Sequence draw(seed ^ (n * 0x1000'0000'01b3));
  Message made{};
  made.pattern = draw.next();
  made.immediate = static_cast<uint32_t>(draw.next());
  made.is_write = draw.one_in(6);
  made.has_key = !made.is_write && draw.one_in(40);
  made.has_immediate = made.is_write || made.has_key || draw.one_in(3);
  made.cell = 1 + draw.below(kCells - 1);
  const uint32_t most = made.is_write ? cell_bytes : kMaxMessage;
  // Often short, seldom as long as can be, now and then empty.
  made.bytes = draw.one_in(3) ? draw.below(most + 1) : draw.below(64);
  return made;
}

}  // namespace verbena::soak
