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

// How a channel lies in the memory that two processes share: a lane for each direction. A lane is a ring of
// entries, one cache line each, and a ring of bytes for payloads that do not fit into the line.
//
// Nothing in it says where something else lies: writer and reader compute every place by the same rule from
// counters of their own. So neither can lead the other out of the lane.
inline constexpr uint32_t kChannelMagic = 0x4c42'5256;  // "VRBL"
inline constexpr uint32_t kLayoutVersion = 7;           // a change of anything below is another version
inline constexpr uint32_t kEntries = 256;
inline constexpr uint32_t kEntryBytes = 64;
// How much of the payload ring is used: its beginning, until a lane is to carry much. Between processors that
// are far from each other a ring of 224 KiB and more carries 15 GB/s, where one of 64 to 160 KiB carries 9 to
// 10. Between those that have a cache in common behind their own, one that is as large as their own carries
// 17, where one of 256 KiB carries 9: what is read comes out of the common one.
enum class RingWidth : uint8_t { kNarrow, kWide, kWidest };
inline constexpr size_t kRingWidths = 3;
using RingSizes = std::array<uint32_t, kRingWidths>;  // in bytes, each a power of two
inline constexpr RingSizes kRingBytes{64 * 1024, 256 * 1024, 1024 * 1024};
inline constexpr uint32_t kMaxPayload = 16 * 1024;  // of one entry
inline constexpr uint32_t kMaxHead = 52;            // an entry's line less what describes it
inline constexpr uint32_t kMaxCopied = 256;         // longer payloads are read where they lie
// What a pair of processes may cost while its rings are narrow.
inline constexpr uint32_t kMaxChannelBytes = 256 * 1024;
// Shorter payloads do not begin the ring again (EntryContent::from_start), nor does any when more has been
// used.
inline constexpr uint32_t kLeastAtStart = 1024;
inline constexpr uint32_t kMaxUsedAgain = 8 * 1024;
inline constexpr uint32_t kPayloadUnit = 64;  // payloads begin at multiples of it in their ring

// kMessages: several small messages, a packet each on a network.
// kLentPacket: one whose payload is still in the writer's memory; the entry's says where (LentPiece).
// The others say how much of the payload ring the entries that follow use. None is in the ring then.
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

// A piece of a payload that is lent, in the writer's own addresses.
struct LentPiece {
  uint64_t address;
  uint64_t bytes;
};
static_assert(sizeof(LentPiece) == 16);

// What an entry says. The head lies at the beginning of the body; the payload behind it where both fit, else
// in the payload ring.
struct EntryContent {
  uint16_t payload_bytes : 15;
  // 1: the payload lies at the ring's start, whatever is left of the ring. Nothing else lies in it.
  uint16_t from_start : 1;
  uint8_t head_bytes;
  EntryKind kind;  // as the other process wrote it: anything
  // How many entries the writer has taken out of the other lane of its channel: what that lane's `consumed`
  // is going to be, or a later one. Free-running.
  uint32_t taken;
  std::byte body[kMaxHead];
};

inline constexpr uint32_t kPayloadBytesMask = (1u << 15) - 1;  // what payload_bytes holds
static_assert(kMaxPayload <= kPayloadBytesMask);

constexpr bool fits_in_line(size_t head_bytes, size_t payload_bytes) {
  return head_bytes + payload_bytes <= kMaxHead;
}

// What a lane is made of. Tests make lanes that are smaller, and of words that let a scheduler step in
// between any two accesses; the writer and the reader are templates for that reason alone.
struct LaneFormat {
  using Word = std::atomic<uint32_t>;
  static constexpr uint32_t kEntries = shm::kEntries;
  static constexpr RingSizes kRingBytes = shm::kRingBytes;
  static constexpr uint32_t kMaxPayload = shm::kMaxPayload;
  static constexpr uint32_t kMaxCopied = shm::kMaxCopied;
  static constexpr uint32_t kLeastAtStart = shm::kLeastAtStart;
  static constexpr uint32_t kMaxUsedAgain = shm::kMaxUsedAgain;

  // No load after it happens before a store ahead of it.
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
  // index + 1, when the entry with this free-running index is complete. Written last, with release.
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

  // The reader's: how many entries it has given back. Free-running.
  alignas(kCacheLine) typename Format::Word consumed;
  // 1 while the reader wants to be rung. Set by the reader, taken back by the writer who rings. In a
  // ChannelHalf, which that writer cannot change, it is another odd number each time, and the writer
  // remembers for which it has rung.
  alignas(kCacheLine) typename Format::Word reader_sleeps;
  // 1 when the reader looks at `in_access` no more. Set by the reader, for good.
  typename Format::Word refuses_access;
  // 1 while the reader can fetch what is lent. Set by the reader.
  typename Format::Word takes_lent;
  // The same while the writer wants to be rung; set by the writer.
  alignas(kCacheLine) typename Format::Word writer_waits;
  // Odd while the writer is at the reader's memory by itself (board.h). Counted up by the writer.
  alignas(kCacheLine) typename Format::Word in_access;

  // From an even line on: processors fetch lines in pairs.
  alignas(2 * kCacheLine) BasicEntry<Format> entries[Format::kEntries];
  std::byte payload[Format::kRingBytes.back()];
};

// Where a payload lies, as free-running byte positions: contiguous, so one that would cross the end of the
// ring begins at the ring's start.
struct PayloadPlace {
  uint32_t begin;
  uint32_t end;
};

// The next position at which the ring begins, or this one. REQUIRES: as for place_payload()
constexpr uint32_t next_start(uint32_t position, uint32_t ring_bytes) {
  return (position + ring_bytes - 1) & ~(ring_bytes - 1);
}

// REQUIRES: ring_bytes is a power of two, as those of kRingBytes are
constexpr PayloadPlace place_payload(uint32_t position, uint32_t payload_bytes, uint32_t ring_bytes) {
  const uint32_t bytes = (payload_bytes + kPayloadUnit - 1) & ~(kPayloadUnit - 1);
  const uint32_t left = ring_bytes - (position & (ring_bytes - 1));
  const uint32_t begin = bytes <= left ? position : position + left;
  return {begin, begin + bytes};
}

// Where the payload ring begins to be used if the entries are counted from `first`; 0 except in tests of the
// counters' overflow.
constexpr uint32_t first_payload_position(uint32_t first) {
  return first & ~(kPayloadUnit - 1);
}

using Entry = BasicEntry<LaneFormat>;
using Lane = BasicLane<LaneFormat>;

struct ChannelMemory {
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> bytes;  // of all
  Lane lanes[2];                // [0] from the channel's maker to the other, [1] back
};

// Half of a channel between processes of different users: each has one, and writes nothing else. Only the
// owner's mapping can write it, and nobody can punch holes into it (F_SEAL_FUTURE_WRITE). The owner is the
// writer of its lane. The words of a reader in it (consumed, reader_sleeps, refuses_access, takes_lent) are
// the owner's, too: it reads the lane of the other half.
struct ChannelHalf {
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> bytes;  // of all
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

// Makes memory that is all zero, as that of a new file is, a channel. It touches one page of it, so that a
// channel that is not used yet takes no more. `first`: where the entries' counters begin (tests).
void format(ChannelMemory& memory, uint32_t first = 0);
void format(ChannelHalf& half);

// Whether it says that it is a channel of this layout, or half of one. REQUIRES: there are so many bytes, and
// the other process cannot take them away
bool is_formatted(const ChannelMemory& memory);
bool is_formatted(const ChannelHalf& half);

// The same for one lane.
template <class Format>
void format_lane(BasicLane<Format>& lane, uint32_t first) {
  if (first == 0) return;
  lane.consumed.store(first, std::memory_order_relaxed);
  for (auto& entry : lane.entries) entry.sequence.store(first, std::memory_order_relaxed);
}

}  // namespace verbena::shm
