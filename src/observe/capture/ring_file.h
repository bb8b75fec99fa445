// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/cache_line.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::capture {

// Layout of the ring from which `verbena capture` reads the packets that a process sends by shared memory.
// There is one ring per slot (a slot is a process's share of the QP numbers). The process writes the ring and
// the command reads it. Records begin at multiples of eight bytes and never wrap around the ring's end: a
// skip record fills the space before the end.
//
// Writer and reader do not trust each other. Each keeps its own position outside the shared memory, and
// validates the counter of the other process. The reader copies a record before validating it.
inline constexpr uint32_t kRingMagic = 0x4342'5256;  // "VRBC"
inline constexpr uint32_t kRingVersion = 1;          // any change of the layout below needs another version
inline constexpr uint32_t kRingBytes = 2 << 20;
inline constexpr uint32_t kRecordUnit = 8;
inline constexpr uint32_t kMaxRecordPayload = 16 * 1024;

struct RingMemory {
  // Written by the creator, before any other process has the ring.
  uint32_t magic;
  uint32_t version;
  uint32_t snap_bytes;  // maximum number of bytes recorded of each packet's payload
  uint32_t reserved;
  alignas(kCacheLine) std::atomic<uint64_t> written;  // by the writer: bytes, free-running
  std::atomic<uint64_t> left_out;  // by the writer: packets dropped because the ring was full
  alignas(kCacheLine) std::atomic<uint64_t> taken;  // by the reader: bytes, free-running
  alignas(kCacheLine) std::byte data[kRingBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && kRingBytes % kRecordUnit == 0);

enum class RecordKind : uint8_t { kPacket = 1, kSkip = 2 };

// Bits of RecordHead::flags, set if the initiator accessed the peer's memory itself, so that no packet was
// sent. The initiator writes records of the packets that would have been sent: kByInitiator marks its own
// request, kPeersAnswer marks the response of the peer.
inline constexpr uint8_t kByInitiator = 1;
inline constexpr uint8_t kPeersAnswer = 2;

// Head of a record, in host byte order. The BTH and extension headers follow as on a network, then the
// recorded payload: the first RingMemory::snap_bytes of each packet of the super-packet.
struct RecordHead {
  uint32_t bytes;  // length of the whole record; a skip record has only the fields `bytes` and `kind`
  RecordKind kind;
  uint8_t flags;
  uint8_t header_bytes;
  uint8_t count;  // number of packets in the super-packet
  int64_t time;   // CLOCK_MONOTONIC, nanoseconds
  uint32_t payload_bytes;
  uint32_t kept_bytes;  // number of payload bytes recorded; 0 if the payload's memory could not be read
  uint32_t source;      // QPN of the sender; 0 if unknown (then the status page or the DETH may have it)
  uint32_t flow_label;
  std::array<uint8_t, 16> source_address;
  std::array<uint8_t, 16> destination_address;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t reserved[6];
};
static_assert(sizeof(RecordHead) == 72 && sizeof(RecordHead) % kRecordUnit == 0);

// Returns the path MTU of a super-packet, in which all packets but the last are full. Returns 0 if no path
// MTU fits. (At most one fits, since path MTUs are powers of two.) Returns 4096 for a single packet, whose
// path MTU does not matter.
constexpr uint32_t path_mtu_of(uint32_t payload_bytes, uint32_t count) {
  if (count == 1) return payload_bytes <= 4096 ? 4096 : 0;
  for (uint32_t mtu = 256; mtu <= 4096; mtu *= 2) {
    if (count > 1 && payload_bytes > (count - 1) * mtu && payload_bytes <= count * mtu) return mtu;
  }
  return 0;
}

// Returns the number of payload bytes to record. REQUIRES: mtu = path_mtu_of(payload_bytes, count), and not 0
constexpr uint32_t kept_bytes_of(uint32_t payload_bytes, uint32_t count, uint32_t mtu, uint32_t snap_bytes) {
  const uint32_t last = payload_bytes - (count - 1) * mtu;
  return (count - 1) * (mtu < snap_bytes ? mtu : snap_bytes) + (last < snap_bytes ? last : snap_bytes);
}

// Creates the memfd of an empty ring, for passing it to another process. The size is sealed and all pages are
// allocated, so accesses to a mapping cannot fault. `snap_bytes`: RingMemory::snap_bytes.
Result<UniqueFd> make_ring_file(uint32_t snap_bytes);

// Owns the mapping of a ring in this process. The writing and the reading process do not trust each other.
class RingMapping {
 public:
  // Maps the ring in `file`. Errors: EPROTO if the file is no ring, has a different layout version, or its
  // size is not sealed; those of mmap(2).
  static Result<RingMapping> map(int file);
  RingMapping(RingMapping&& other) noexcept : ring_(std::exchange(other.ring_, nullptr)) {}
  RingMapping& operator=(RingMapping&& other) noexcept {
    std::swap(ring_, other.ring_);
    return *this;
  }
  ~RingMapping();

  RingMemory& memory() const { return *ring_; }

 private:
  explicit RingMapping(RingMemory* ring) : ring_(ring) {}
  RingMemory* ring_;
};

}  // namespace verbena::capture
