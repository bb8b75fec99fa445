// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/cache_line.h"

namespace verbena::capture {

// How packets that a process sends by memory lie in the ring that `verbena capture` reads: one ring for each
// slot, written by the shard that has the slot, read by the command. Records follow each other at multiples
// of eight bytes; none goes over the ring's end: a skip fills what is left there.
//
// Both sides compute where they are from counters of their own. What the other's counter says is checked; the
// records the reader copies first, then checks.
inline constexpr uint32_t kRingMagic = 0x4342'5256;  // "VRBC"
inline constexpr uint32_t kRingVersion = 1;          // a change of anything below is another version
inline constexpr uint32_t kRingBytes = 2 << 20;
inline constexpr uint32_t kRecordUnit = 8;
inline constexpr uint32_t kMaxRecordPayload = 16 * 1024;

struct RingMemory {
  // Written by the maker, before anybody else has the ring.
  uint32_t magic;
  uint32_t version;
  uint32_t snap_bytes;  // of each packet's payload so many are wanted
  uint32_t reserved;
  alignas(kCacheLine) std::atomic<uint64_t> written;  // bytes, free-running; the writer's
  std::atomic<uint64_t> left_out;                     // packets that found no room; the writer's
  alignas(kCacheLine) std::atomic<uint64_t> taken;    // bytes, free-running; the reader's
  alignas(kCacheLine) std::byte data[kRingBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && kRingBytes % kRecordUnit == 0);

enum class RecordKind : uint8_t { kPacket = 1, kSkip = 2 };

// RecordHead::flags
inline constexpr uint8_t kByInitiator = 1;  // no packet: what the sender did itself in the peer's memory
inline constexpr uint8_t kPeersAnswer = 2;  // likewise, and the peer would have sent this

// Host byte order. BTH and extension headers follow, as on a network, then what is kept of the payload: of
// each of the joined packets its first RingMemory::snap_bytes.
struct RecordHead {
  uint32_t bytes;  // of the whole record; of a skip only this and the next field are there
  RecordKind kind;
  uint8_t flags;
  uint8_t header_bytes;
  uint8_t count;  // of packets that are joined
  int64_t time;   // CLOCK_MONOTONIC, nanoseconds
  uint32_t payload_bytes;
  uint32_t kept_bytes;  // of the payload; 0 if it could not be read
  uint32_t source;      // the sending QP, if the sender knew; 0: it is in the status page or the DETH
  uint32_t flow_label;
  std::array<uint8_t, 16> source_address;
  std::array<uint8_t, 16> destination_address;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t reserved[6];
};
static_assert(sizeof(RecordHead) == 72 && sizeof(RecordHead) % kRecordUnit == 0);

// The path MTU of packets that are joined: all but the last are full. 0: there is none that fits. (Path MTUs
// are powers of two, and no two of them fit.)
constexpr uint32_t path_mtu_of(uint32_t payload_bytes, uint32_t count) {
  if (count == 1) return payload_bytes <= 4096 ? 4096 : 0;
  for (uint32_t mtu = 256; mtu <= 4096; mtu *= 2) {
    if (count > 1 && payload_bytes > (count - 1) * mtu && payload_bytes <= count * mtu) return mtu;
  }
  return 0;
}

// What is kept of a payload. REQUIRES: mtu = path_mtu_of(payload_bytes, count), and not 0
constexpr uint32_t kept_bytes_of(uint32_t payload_bytes, uint32_t count, uint32_t mtu, uint32_t snap_bytes) {
  const uint32_t last = payload_bytes - (count - 1) * mtu;
  return (count - 1) * (mtu < snap_bytes ? mtu : snap_bytes) + (last < snap_bytes ? last : snap_bytes);
}

}  // namespace verbena::capture
