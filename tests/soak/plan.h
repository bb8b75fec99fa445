// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "soak/pattern.h"

namespace verbena::soak {

// A connection's memory window consists of cells of equal size. The first cell is for atomics; the others are
// written and read back by the peer.
inline constexpr uint32_t kCells = 8;
inline constexpr uint32_t kDepth = 16;         // outstanding requests of one end, and receives of one QP
inline constexpr uint32_t kMaxMessage = 8192;  // longest SEND, and size of a receive buffer
inline constexpr uint32_t kSmallCell = 8192;
inline constexpr uint32_t kLooseBytes = 64 * 1024;  // after the cells
inline constexpr uint32_t kLargeCell = 128 * 1024;  // many packets even over shared memory

// The private data that the ends exchange when they connect. A REQ has room for 56 bytes.
struct Greeting {
  uint32_t process;  // number of the process in the test
  uint32_t cell_bytes;
  uint64_t seed;  // determines all messages of the sender
  uint64_t window;
  uint64_t tally;  // address of the counter that all connections of the process increment
  uint32_t window_key;
  uint32_t tally_key;
  uint32_t uc_qpn;
  uint32_t ud_qpn;
  uint32_t uc_key;  // key of the window with the bytes after its cells, which UC may write
  uint32_t reserved;
};
static_assert(sizeof(Greeting) == 56);

// The n-th message of an end. Both ends can compute it, so the receiver knows every byte to expect.
struct Message {
  uint32_t bytes;
  uint32_t immediate;
  bool has_immediate;
  bool is_write;  // RDMA WRITE with immediate data, into `cell`
  bool has_key;   // the immediate data is the key of a memory window for the peer
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
  // Mostly short, sometimes up to the maximum, occasionally empty.
  made.bytes = draw.one_in(3) ? draw.below(most + 1) : draw.below(64);
  return made;
}

}  // namespace verbena::soak
