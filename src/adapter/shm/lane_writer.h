// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "adapter/memory/guarded.h"
#include "adapter/shm/layout.h"
#include "base/bytes.h"
#include "base/cache_line.h"

namespace verbena::shm {

enum class Put : uint8_t {
  kDone,
  kFull,   // no room, or the lane is broken
  kFault,  // the payload's memory is gone; nothing has been put
};

// The room that a writer needs before it can go on: room for one entry with this many bytes of payload, and
// `spare` further free entries.
struct Room {
  uint32_t payload_bytes = 0;
  uint32_t spare = 0;
};

// The writing end of a lane. One thread at a time.
//
// put() makes an entry visible at once. "To ring" means to wake the other process (LocalLine::ring()). After
// one or several entries the caller calls must_ring(), and rings the reader if it returns true. It does so
// before anything that may take long, and before wait_for_room(). If put() finds the lane full, the caller
// calls wait_for_room(), which asks the reader to ring when there is room.
//
// The writer uses only the narrow beginning of the payload ring, until use_ring() changes that.
//
// Each process also tells the other how many entries it has read from the opposite lane. The count travels in
// the entries that it writes (say_taken(), hear_taken()). So when a process gets an answer, it knows that its
// own lane has room, without reading the peer's counter.
//
// The reader is untrusted. Only its counter and the counts in its entries are used. An impossible counter
// breaks the lane.
template <class Format>
class BasicLaneWriter {
 public:
  using Put = shm::Put;
  using Lane = BasicLane<Format>;

  // `first`: the index at which counting begins, as given to format().
  explicit BasicLaneWriter(Lane& lane, uint32_t first = 0) : BasicLaneWriter(lane, lane, first) {}
  // For a channel of two halves (ChannelHalf). `lane` is in our half. `reader` is the lane in the other
  // process's half; it holds the words that the reader writes, and is only read here.
  BasicLaneWriter(Lane& lane, const Lane& reader, uint32_t first = 0)
      : lane_(&lane),
        reader_(&reader),
        next_(first),
        looked_at_(first),
        consumed_(first),
        payload_next_(first_payload_position(first)),
        payload_freed_(payload_next_) {}

  // Puts an entry with a head and a payload. `payload` is user memory and may fault (Put::kFault). REQUIRES:
  // head.size() <= kMaxHead; payload_bytes <= kMaxPayload; the pieces of `payload` have payload_bytes in
  // total
  Put put(EntryKind kind, ConstBytes head, std::span<const ConstBytes> payload = {},
          uint32_t payload_bytes = 0) {
    return put_with(
        kind, head.size(),
        [head](std::byte* to) {
          if (!head.empty()) std::memcpy(to, head.data(), head.size());
        },
        payload, payload_bytes);
  }

  // Like put(), but the head, of exactly head_bytes, is written by a call of write(std::byte*). The lane
  // counts as full when only kSpare entries or fewer are free. These are kept for entries that must not wait
  // for the reader, such as acknowledgements.
  template <uint32_t kSpare = 0, class WriteHead>
  Put put_with(EntryKind kind, size_t head_bytes, WriteHead write, std::span<const ConstBytes> payload,
               uint32_t payload_bytes) {
    const bool in_line = fits_in_line(head_bytes, payload_bytes);
    // In two steps: as one expression it cost a SEND of 8 bytes a twentieth of its time.
    PayloadPlace place{payload_next_, payload_next_};
    if (!in_line) place = next_place(payload_bytes);
    if (!fits(place.end, kSpare) && !find_room(place.end, kSpare)) [[unlikely]] {
      if (!in_line) ++times_full_;
      return Put::kFull;
    }
    if (width_ != wanted_width_ && !in_line) [[unlikely]] {
      put_mark();
      place = next_place(payload_bytes);
    }
    const bool from_start = payload_bytes >= Format::kLeastAtStart && begins_again();
    if (from_start) place = place_payload(start(), payload_bytes, ring_bytes_);

    auto& entry = lane_->entries[next_ % Format::kEntries];
    EntryContent& content = entry.content;
    std::byte* to = in_line ? content.body + head_bytes : lane_->payload + (place.begin & (ring_bytes_ - 1));
    for (const ConstBytes piece : payload) {
      if (!memory::copy_guarded(to, piece)) [[unlikely]]
        return Put::kFault;
      to += piece.size();
    }
    write(content.body);
    content.payload_bytes = payload_bytes & kPayloadBytesMask;
    content.from_start = from_start ? 1 : 0;
    content.head_bytes = static_cast<uint8_t>(head_bytes);
    content.kind = kind;
    content.taken = taken_;

    if (from_start) begin_again(place.begin);
    payload_bytes_ += place.end - place.begin;
    payload_ends_[next_ % Format::kEntries] = place.end;
    payload_next_ = place.end;
    ++next_;
    entry.sequence.store(next_, std::memory_order_release);
    // Its line was last the reader's. Not the very next, at which the reader may be looking by now.
    prefetch_for_write(&lane_->entries[(next_ + 1) % Format::kEntries]);
    if (!in_line && !from_start) fetch_next_place(payload_bytes);
    return Put::kDone;
  }

  // Returns whether an entry with any head fits into the lane now, with as much payload and as many spare
  // entries behind it as `room` says. Returns false if the lane is broken.
  bool has_room(Room room) const {
    const uint32_t end = end_of(room);
    if (fits(end, room.spare)) return true;
    const uint32_t consumed = latest_consumed(std::memory_order_acquire);
    return !broken_ && is_possible(consumed) && fits(end, room.spare, consumed, payload_freed_at(consumed));
  }

  // Notes how many entries of this lane the reader has read. The caller has got the count from an entry of
  // the opposite lane (LaneReader::taken_by_writer()). Ignores counts that are older than the known one, and
  // impossible ones.
  void hear_taken(uint32_t taken) {
    if (!broken_ && is_possible(taken)) note_consumed(taken);
  }
  // Sets the count that later entries carry: how many entries of the opposite lane this process has read.
  void say_taken(uint32_t taken) { taken_ = taken; }

  // Returns whether the reader sleeps and the caller must ring (wake) it now. Returns true at most once for
  // each time that the reader goes to sleep.
  //
  // The reader first says that it sleeps, then looks for an entry. We first put the entry, then look whether
  // the reader sleeps. Both sides have a full fence between these two steps. So the reader finds the entry,
  // or we find that the reader sleeps.
  bool must_ring() {
    if (looked_at_ == next_) return false;  // it looked itself, after what was put until then
    looked_at_ = next_;
    Format::full_fence();
    const uint32_t asks = reader_->reader_sleeps.load(std::memory_order_seq_cst);
    if (asks == 0) return false;
    if (reader_ == lane_) return lane_->reader_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
    return std::exchange(answered_, asks) != asks;
  }

  // Asks the reader to ring when it has given back enough entries and payload for `room`. Returns false if
  // there already is this room. Always returns true if the lane is broken. The request stays when smaller
  // entries are put meanwhile.
  bool wait_for_room(Room room) {
    if (broken_) return true;
    waits_ = true;
    waits_for_ = room;
    // As in must_ring(), the other way round: we say that we wait, and then look.
    if (reader_ != lane_) asks_ += 2;
    lane_->writer_waits.store(asks_, std::memory_order_seq_cst);
    return !find_room(end_of(room), room.spare);
  }

  // Sets how much of the payload ring to use. The change takes effect when the ring is empty; until then
  // put() returns kFull for entries that need the ring.
  void use_ring(RingWidth width) { wanted_width_ = width; }
  RingWidth wanted_width() const { return wanted_width_; }
  bool is_wide() const { return wanted_width_ != RingWidth::kNarrow; }
  // Makes the lane use only the narrow beginning of the payload ring again, at once. Returns false, without a
  // change, if the ring is not empty, no entry is free, or the lane is broken.
  bool narrow() {
    if (!find_room(payload_next_, 0) || payload_freed_ != payload_next_) return false;
    wanted_width_ = RingWidth::kNarrow;
    if (width_ != wanted_width_) put_mark();
    return true;
  }
  // Returns whether the reader can fetch payloads from the memory of this process (rendezvous,
  // EntryKind::kLentPacket), as it says itself.
  bool may_lend() const { return reader_->takes_lent.load(std::memory_order_relaxed) == 1; }
  // Returns the part of the payload ring that a narrow lane does not use.
  std::span<std::byte> beyond_narrow_ring() const {
    return std::span(lane_->payload).subspan(ring_bytes<Format>(RingWidth::kNarrow));
  }
  // Counts how often a payload found no room. Free-running.
  uint32_t times_full() const { return times_full_; }
  // Counts the bytes that have gone through the payload ring, with padding. Free-running.
  uint32_t payload_position() const { return payload_bytes_; }

  // put_so_far() returns how many entries were put; it wraps at 2^32. is_given_back(so_far) returns whether
  // the reader has given back all entries that were put before put_so_far() returned `so_far`. It also
  // returns true if the lane is broken. The reader gives an entry back soon after it was read, at the latest
  // when it finds no more.
  uint32_t put_so_far() const { return next_; }
  bool is_given_back(uint32_t so_far) const {
    const uint32_t consumed = latest_consumed(std::memory_order_acquire);
    return broken_ || !is_possible(consumed) || static_cast<int32_t>(consumed - so_far) >= 0;
  }

  // Returns whether the reader has claimed to have read entries that were never put. Then nothing more can be
  // put.
  bool is_broken() const { return broken_; }

 private:
  // Returns whether a payload that ends at `end` fits into the ring. A payload in the entry itself always
  // fits. While a change of the ring's size is pending (use_ring()), other payloads fit only into an empty
  // ring.
  bool fits_ring(uint32_t end, uint32_t freed) const {
    if (end == payload_next_) [[likely]]
      return true;
    return width_ != wanted_width_ ? freed == payload_next_ : end - freed <= ring_bytes_;
  }
  bool fits(uint32_t end, uint32_t spare, uint32_t consumed, uint32_t freed) const {
    // One more for the mark that the ring is another.
    const uint32_t marks = width_ != wanted_width_ && end != payload_next_ ? 1 : 0;
    return next_ - consumed + marks < Format::kEntries - spare && fits_ring(end, freed);
  }
  bool fits(uint32_t end, uint32_t spare) const { return fits(end, spare, consumed_, payload_freed_); }

  // Returns where the payload of the next entry would end in the ring.
  uint32_t end_of(Room room) const { return next_place(room.payload_bytes).end; }
  PayloadPlace next_place(uint32_t payload_bytes) const {
    return place_payload(payload_next_, payload_bytes, ring_bytes_);
  }

  // Puts an entry that announces the wanted size of the payload ring. From then on the ring has this size.
  // REQUIRES: the ring is empty, and an entry is free
  void put_mark() {
    auto& entry = lane_->entries[next_ % Format::kEntries];
    entry.content.payload_bytes = 0;
    entry.content.from_start = 0;
    entry.content.head_bytes = 0;
    entry.content.kind = mark_of(wanted_width_);
    entry.content.taken = taken_;
    payload_ends_[next_ % Format::kEntries] = payload_next_;
    ++next_;
    entry.sequence.store(next_, std::memory_order_release);
    width_ = wanted_width_;
    ring_bytes_ = ring_bytes<Format>(width_);
  }

  // Returns whether to put the next payload at the ring's start: the ring is empty, and only a little of its
  // beginning has been used. Then messages that alternate with answers reuse the same few cache lines, which
  // stay in the first-level caches. In a stream this would be slower: the writer would have to fetch the
  // reused lines from the reader's cache.
  bool begins_again() const {
    const uint32_t used = payload_next_ & (ring_bytes_ - 1);
    return payload_freed_ == payload_next_ && used - 1 < Format::kMaxUsedAgain;
  }
  uint32_t start() const { return next_start(payload_next_, ring_bytes_); }
  // REQUIRES: begins_again(); `start` is start()
  void begin_again(uint32_t start) {
    // Those that are still to be taken have nothing in the ring, but say until where it is free.
    for (uint32_t index = consumed_; index != next_; ++index) payload_ends_[index % Format::kEntries] = start;
    payload_freed_ = start;
  }

  // Returns the reader's counter, or the count from its entries (hear_taken()) if that is newer.
  uint32_t latest_consumed(std::memory_order order) const {
    const uint32_t consumed = reader_->consumed.load(order);
    return consumed_ - consumed <= Format::kEntries ? consumed_ : consumed;
  }
  bool is_possible(uint32_t consumed) const { return consumed - consumed_ <= next_ - consumed_; }

  // Returns up to which position the payload ring is free when this many entries have been consumed.
  uint32_t payload_freed_at(uint32_t consumed) const {
    return consumed == consumed_ ? payload_freed_ : payload_ends_[(consumed - 1) % Format::kEntries];
  }

  // REQUIRES: is_possible(consumed)
  void note_consumed(uint32_t consumed) {
    payload_freed_ = payload_freed_at(consumed);
    consumed_ = consumed;
  }

  // Reads the reader's counter. Returns whether there is room for an entry whose payload ends at `end`, and
  // for `spare` further entries. An impossible counter breaks the lane.
  bool find_room(uint32_t end, uint32_t spare) {
    if (broken_) return false;
    const uint32_t consumed = latest_consumed(std::memory_order_seq_cst);
    if (!is_possible(consumed)) {
      broken_ = true;
      consumed_ = next_ - Format::kEntries;  // full
      return false;
    }
    note_consumed(consumed);
    if (waits_ && fits(end_of(waits_for_), waits_for_.spare)) {
      waits_ = false;
      lane_->writer_waits.store(0, std::memory_order_relaxed);
    }
    return fits(end, spare);
  }

  // Prefetches the ring's cache lines for the next payload, which is assumed to be as long as this one. The
  // lines are still in the reader's cache, so it takes time to fetch them. Does nothing if the reader has not
  // given these bytes back yet.
  void fetch_next_place(uint32_t payload_bytes) {
    const PayloadPlace place = next_place(payload_bytes);
    if (!fits_ring(place.end, payload_freed_)) return;
    const std::byte* const at = lane_->payload + (place.begin & (ring_bytes_ - 1));
    for (uint32_t offset = 0; offset < place.end - place.begin; offset += kCacheLine) {
      prefetch_for_write(at + offset);
    }
  }

  Lane* lane_;
  const Lane* reader_;          // the lane with the reader's words; lane_ if there is only one
  uint32_t next_;               // the index of the next entry
  uint32_t looked_at_;          // next_ when must_ring() looked
  uint32_t consumed_;           // the reader's counter, as last read or heard by hear_taken()
  uint32_t payload_next_;       // free-running positions in the payload ring: the next payload,
  uint32_t payload_freed_;      // and until where the reader has given it back
  uint32_t payload_bytes_ = 0;  // bytes, as payload_position()
  uint32_t taken_ = 0;          // entries of the opposite lane, as say_taken() said
  RingWidth width_ = RingWidth::kNarrow;
  RingWidth wanted_width_ = RingWidth::kNarrow;  // width_ becomes this once the ring is empty
  uint32_t ring_bytes_ = ring_bytes<Format>(RingWidth::kNarrow);
  uint32_t times_full_ = 0;
  Room waits_for_;
  bool waits_ = false;     // writer_waits may be set
  uint32_t asks_ = 1;      // the last value of writer_waits; odd, so never 0
  uint32_t answered_ = 0;  // the value of reader_sleeps for which the reader was rung last
  bool broken_ = false;
  // For each entry, the position in the ring at which its payload ends. For an entry without a payload in the
  // ring, it is the position of the entry before.
  std::array<uint32_t, Format::kEntries> payload_ends_{};
};

using LaneWriter = BasicLaneWriter<LaneFormat>;

}  // namespace verbena::shm
