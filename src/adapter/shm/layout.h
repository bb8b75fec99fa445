// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/cache_line.h"

namespace verbena::shm {

// The layout of a channel in the memory that two processes share: a lane for each direction. A lane is a ring
// of entries, one cache line each, and a payload ring, which holds the payloads that do not fit into an
// entry.
//
// No position is stored in the memory. Writer and reader compute every place by the same rule from their own
// counters. So neither can lead the other outside the lane.
inline constexpr uint32_t kChannelMagic = 0x4c42'5256;  // "VRBL"
// Any change of this layout needs another version.
inline constexpr uint32_t kLayoutVersion = 7;
inline constexpr uint32_t kEntries = 256;
inline constexpr uint32_t kEntryBytes = 64;
// How much of the payload ring is used: only its beginning (kNarrow), until a stream needs more. Measured
// between distant CPUs: rings of 224 KiB and more carry 15 GB/s, rings of 64 to 160 KiB only 9 to 10 GB/s.
// Measured between CPUs that share an outer cache: a ring as large as a CPU's private cache carries 17 GB/s,
// one of 256 KiB only 9 GB/s, because it is read from the shared cache.
enum class RingWidth : uint8_t { kNarrow, kWide, kWidest };
inline constexpr size_t kRingWidths = 3;
using RingSizes = std::array<uint32_t, kRingWidths>;  // in bytes, each a power of two
inline constexpr RingSizes kRingBytes{64 * 1024, 256 * 1024, 1024 * 1024};
inline constexpr uint32_t kMaxPayload = 16 * 1024;  // in bytes, of one entry
inline constexpr uint32_t kMaxHead = 52;  // in bytes: the part of an entry that EntryContent::body has
// In bytes. LaneReader does not copy a longer payload: it is read in the ring.
inline constexpr uint32_t kMaxCopied = 256;
// The limit of a channel's memory, in bytes, while its rings are narrow.
inline constexpr uint32_t kMaxChannelBytes = 256 * 1024;
// Conditions for putting a payload at the ring's start again (EntryContent::from_start), in bytes. The
// payload has at least kLeastAtStart, and at most kMaxUsedAgain of the ring have been used since its start.
inline constexpr uint32_t kLeastAtStart = 1024;
inline constexpr uint32_t kMaxUsedAgain = 8 * 1024;
// In bytes. A payload begins at a multiple of this in its ring.
inline constexpr uint32_t kPayloadUnit = 64;

// kPath: the path of the packets that follow (local_packets.h).
// kMessages: several small messages, each of which would be a packet on a network.
// kLentPacket: a packet whose payload is still in the writer's memory (rendezvous). The entry's own payload
// is a list of LentPiece that says where.
// kNarrowRing, kWideRing, kWidestRing: how much of the payload ring the following entries use. When the
// writer puts such an entry, the ring is empty.
enum class EntryKind : uint8_t {
  kPacket = 1,
  kPath = 2,
  kMessages = 3,
  kLentPacket = 4,
  kNarrowRing = 5,
  kWideRing = 6,
  kWidestRing = 7
};

constexpr bool is_known(EntryKind kind) {
  return kind >= EntryKind::kPacket && kind <= EntryKind::kWidestRing;
}
constexpr bool is_of_ring(EntryKind kind) {
  return is_known(kind) && kind >= EntryKind::kNarrowRing;
}
constexpr EntryKind mark_of(RingWidth width) {
  return static_cast<EntryKind>(static_cast<uint8_t>(EntryKind::kNarrowRing) + static_cast<uint8_t>(width));
}
// REQUIRES: is_of_ring(mark)
constexpr RingWidth width_of(EntryKind mark) {
  return static_cast<RingWidth>(static_cast<uint8_t>(mark) - static_cast<uint8_t>(EntryKind::kNarrowRing));
}
static_assert(mark_of(RingWidth::kWidest) == EntryKind::kWidestRing);

// A piece of a payload for rendezvous: an address in the writer's process.
struct LentPiece {
  uint64_t address;
  uint64_t bytes;
};
static_assert(sizeof(LentPiece) == 16);

// The content of an entry. The head lies at the beginning of the body. The payload lies behind it if both
// fit, else in the payload ring.
struct EntryContent {
  uint16_t payload_bytes : 15;
  // 1: the payload lies at the ring's start, although the ring has more room at its end. The ring is empty
  // before this payload.
  uint16_t from_start : 1;
  uint8_t head_bytes;
  EntryKind kind;  // untrusted: any value may stand here
  // How many entries the writer has read from the opposite lane of its channel. Free-running. That lane's
  // `consumed` will reach this value later.
  uint32_t taken;
  std::byte body[kMaxHead];
};

inline constexpr uint32_t kPayloadBytesMask = (1u << 15) - 1;  // what payload_bytes holds
static_assert(kMaxPayload <= kPayloadBytesMask);

constexpr bool fits_in_line(size_t head_bytes, size_t payload_bytes) {
  return head_bytes + payload_bytes <= kMaxHead;
}

// The sizes and word types of a lane. Reader and writer are templates only for tests. These use smaller
// lanes, and word types that let a test's scheduler switch threads between any two accesses.
struct LaneFormat {
  using Word = std::atomic<uint32_t>;
  static constexpr uint32_t kEntries = shm::kEntries;
  static constexpr RingSizes kRingBytes = shm::kRingBytes;
  static constexpr uint32_t kMaxPayload = shm::kMaxPayload;
  static constexpr uint32_t kMaxCopied = shm::kMaxCopied;
  static constexpr uint32_t kLeastAtStart = shm::kLeastAtStart;
  static constexpr uint32_t kMaxUsedAgain = shm::kMaxUsedAgain;

  // A full memory fence: no later load happens before an earlier store.
  static void full_fence() {
#ifdef __SANITIZE_THREAD__  // which knows no fences: a read-modify-write does the same to the processor
    std::atomic<uint32_t> own{0};
    own.exchange(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }
};

template <class Format>
struct BasicEntry {
  // index + 1 once the entry with this free-running index is complete. Written last, with release.
  typename Format::Word sequence;
  EntryContent content;
};

template <class Format>
constexpr uint32_t ring_bytes(RingWidth width) {
  return Format::kRingBytes[static_cast<size_t>(width)];
}
constexpr bool are_powers_that_grow(const RingSizes& sizes) {
  return std::ranges::all_of(sizes, [](uint32_t bytes) { return std::has_single_bit(bytes); }) &&
         std::ranges::is_sorted(sizes);
}

template <class Format>
struct BasicLane {
  static_assert((Format::kEntries & (Format::kEntries - 1)) == 0);
  static_assert(are_powers_that_grow(Format::kRingBytes));
  // The longest payload finds room when a quarter of the ring has been given back, wherever it must begin.
  static_assert(Format::kMaxPayload % kPayloadUnit == 0 &&
                Format::kMaxPayload <= Format::kRingBytes.front() / 4);

  // Written by the reader: how many entries it has given back. Free-running.
  alignas(kCacheLine) typename Format::Word consumed;
  // Written by the reader: 1 while it wants to be rung (woken, LocalLine::ring()), else 0. The writer that
  // rings sets it back to 0. In a ChannelHalf the writer cannot write this word. So the reader stores a
  // different odd number each time, and the writer remembers the number for which it rang last.
  alignas(kCacheLine) typename Format::Word reader_sleeps;
  // Written by the reader: becomes 1 when the reader stops watching `in_access`, and stays 1. From then on,
  // the writer may not access the reader's memory directly.
  typename Format::Word refuses_access;
  // Written by the reader: 1 while it can fetch payloads from the writer's memory (rendezvous), else 0.
  typename Format::Word takes_lent;
  // Written by the writer: as reader_sleeps, while the writer waits for room and wants to be rung.
  alignas(kCacheLine) typename Format::Word writer_waits;
  // Written by the writer: a counter that is odd while the writer accesses the reader's memory directly
  // (visit.h).
  alignas(kCacheLine) typename Format::Word in_access;

  // Aligned to two lines, as processors fetch lines in pairs.
  alignas(2 * kCacheLine) BasicEntry<Format> entries[Format::kEntries];
  std::byte payload[Format::kRingBytes.back()];
};

// The place of a payload in the payload ring, as byte positions that wrap at 2^32. The place is contiguous: a
// payload that would cross the end of the ring begins at the ring's start.
struct PayloadPlace {
  uint32_t begin;
  uint32_t end;
};

// Returns the first position from `position` on that is the ring's start. REQUIRES: ring_bytes is a power of
// two
constexpr uint32_t next_start(uint32_t position, uint32_t ring_bytes) {
  return (position + ring_bytes - 1) & ~(ring_bytes - 1);
}

// Returns the place of the next payload: at `position`, or at the ring's next start if the payload would
// cross the ring's end. REQUIRES: ring_bytes is a power of two, as in kRingBytes
constexpr PayloadPlace place_payload(uint32_t position, uint32_t payload_bytes, uint32_t ring_bytes) {
  const uint32_t bytes = (payload_bytes + kPayloadUnit - 1) & ~(kPayloadUnit - 1);
  const uint32_t left = ring_bytes - (position & (ring_bytes - 1));
  const uint32_t begin = bytes <= left ? position : position + left;
  return {begin, begin + bytes};
}

// Returns the position in the payload ring at which a lane begins if its entries are counted from `first`.
// Both are 0, except in tests of counter overflow.
constexpr uint32_t first_payload_position(uint32_t first) {
  return first & ~(kPayloadUnit - 1);
}

using Entry = BasicEntry<LaneFormat>;
using Lane = BasicLane<LaneFormat>;

struct ChannelMemory {
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> bytes;  // sizeof(ChannelMemory)
  Lane lanes[2];                // [0] from the channel's maker to the other, [1] back
};

// Half of a channel between processes of different users. Each process owns one half and writes only to that.
// Only the owner's mapping is writable, and nobody can punch holes into the file (F_SEAL_FUTURE_WRITE). The
// owner writes the lane in its half, and reads the lane in the other half. The words that a reader writes
// (consumed, reader_sleeps, refuses_access, takes_lent) lie in the reader's own half.
struct ChannelHalf {
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> bytes;  // sizeof(ChannelHalf)
  Lane lane;
};

// Two processes share these words, so no lock of a library may stand behind them.
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);
static_assert(sizeof(EntryContent) == 60 && offsetof(EntryContent, body) == 8);
static_assert(sizeof(Entry) == kEntryBytes && offsetof(Entry, content) == 4);
static_assert(offsetof(Lane, reader_sleeps) == 64 && offsetof(Lane, writer_waits) == 128);
static_assert(offsetof(Lane, refuses_access) == 68 && offsetof(Lane, takes_lent) == 72);
static_assert(offsetof(Lane, in_access) == 192);
static_assert(offsetof(Lane, entries) == 256 && offsetof(Lane, payload) == 256 + kEntries * kEntryBytes);
static_assert(sizeof(Lane) == offsetof(Lane, payload) + kRingBytes.back());
static_assert(offsetof(ChannelMemory, lanes) == 128 && sizeof(ChannelMemory) == 128 + 2 * sizeof(Lane));
static_assert(sizeof(ChannelMemory) - 2 * (kRingBytes.back() - kRingBytes.front()) <= kMaxChannelBytes);
static_assert(std::is_standard_layout_v<ChannelMemory> && std::is_trivially_destructible_v<ChannelMemory>);
static_assert(offsetof(ChannelHalf, lane) == 128 && sizeof(ChannelHalf) == 128 + sizeof(Lane));
static_assert(std::is_standard_layout_v<ChannelHalf> && std::is_trivially_destructible_v<ChannelHalf>);

// Formats memory that is all zero, as that of a new file is, as a channel. With `first` == 0 it touches one
// page only, so an unused channel costs little. `first` is the index of the first entry; only tests use
// another than 0.
void format(ChannelMemory& memory, uint32_t first = 0);
void format(ChannelHalf& half);

// Returns whether the memory begins with the header of a channel of this layout, or of half of one. REQUIRES:
// the memory has the type's size, and the other process cannot shorten the file
bool is_formatted(const ChannelMemory& memory);
bool is_formatted(const ChannelHalf& half);

// Makes one lane count its entries from `first`. REQUIRES: the lane is all zero
template <class Format>
void format_lane(BasicLane<Format>& lane, uint32_t first) {
  if (first == 0) return;
  lane.consumed.store(first, std::memory_order_relaxed);
  for (auto& entry : lane.entries) entry.sequence.store(first, std::memory_order_relaxed);
}

}  // namespace verbena::shm
