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

// What a writer wants before it goes on: room for so much payload in one entry, and so many entries free
// behind it.
struct Room {
  uint32_t payload_bytes = 0;
  uint32_t spare = 0;
};

// The writing end of a lane. One thread at a time.
//
// put() makes an entry visible at once. After some of them the caller asks must_ring(), and rings the reader
// if so: before it does anything that may take long, and before wait_for_room(). When put() finds the lane
// full, wait_for_room() asks the reader to ring.
//
// It uses the narrow beginning of the payload ring, until use_ring() says otherwise.
//
// What the two ends of a channel have taken of each other's entries travels with these: say_taken(),
// hear_taken(). So who has an answer knows that there is room without a look at the reader's counter.
//
// The reader is untrusted: what is known of it are its counter and what it tells. A counter that cannot be
// breaks the lane.
template <class Format>
class BasicLaneWriter {
 public:
  using Put = shm::Put;
  using Lane = BasicLane<Format>;

  // `first`: as given to format().
  explicit BasicLaneWriter(Lane& lane, uint32_t first = 0) : BasicLaneWriter(lane, lane, first) {}
  // `reader`: the lane with the words that the reader writes (ChannelHalf). Memory that is only read.
  BasicLaneWriter(Lane& lane, const Lane& reader, uint32_t first = 0)
      : lane_(&lane),
        reader_(&reader),
        next_(first),
        looked_at_(first),
        consumed_(first),
        payload_next_(first_payload_position(first)),
        payload_freed_(payload_next_) {}

  // `payload` is user memory, and may fault.
  // REQUIRES: head.size() <= kMaxHead, payload_bytes <= kMaxPayload, and is what the pieces have together
  Put put(EntryKind kind, ConstBytes head, std::span<const ConstBytes> payload = {},
          uint32_t payload_bytes = 0) {
    return put_with(
        kind, head.size(),
        [head](std::byte* to) {
          if (!head.empty()) std::memcpy(to, head.data(), head.size());
        },
        payload, payload_bytes);
  }

  // The same with a head that write(std::byte*) puts there, of exactly this length. The lane counts as full
  // when no more than kSpare entries are free: what must not wait for others to be read finds room in those.
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

  // Whether an entry with this much payload, and any head, finds room now.
  bool has_room(Room room) const {
    const uint32_t end = end_of(room);
    if (fits(end, room.spare)) return true;
    const uint32_t consumed = latest_consumed(std::memory_order_acquire);
    return !broken_ && is_possible(consumed) && fits(end, room.spare, consumed, payload_freed_at(consumed));
  }

  // What the reader of this lane says in an entry of the other one that it has taken. What is older than what
  // is known counts for nothing, nor does what cannot be.
  void hear_taken(uint32_t taken) {
    if (!broken_ && is_possible(taken)) note_consumed(taken);
  }
  // So many entries of the other lane have been taken by its reader, who is on this side: told from now on.
  void say_taken(uint32_t taken) { taken_ = taken; }

  // Whether the reader sleeps and is to be rung, by the caller, now. At most once for each time that it goes
  // to sleep.
  //
  // The reader says that it sleeps and then looks for an entry; we have put the entry and then look whether
  // it sleeps. With a full fence between the two on either side, one sees the other.
  bool must_ring() {
    if (looked_at_ == next_) return false;  // it looked itself, after what was put until then
    looked_at_ = next_;
    Format::full_fence();
    const uint32_t asks = reader_->reader_sleeps.load(std::memory_order_seq_cst);
    if (asks == 0) return false;
    if (reader_ == lane_) return lane_->reader_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
    return std::exchange(answered_, asks) != asks;
  }

  // Asks the reader to ring when it has given something back. False: there is that room already. (True
  // forever when the lane is broken.) What is put meanwhile, in less room, changes nothing about it.
  bool wait_for_room(Room room) {
    if (broken_) return true;
    waits_ = true;
    waits_for_ = room;
    // As in must_ring(), the other way round: we say that we wait, and then look.
    if (reader_ != lane_) asks_ += 2;
    lane_->writer_waits.store(asks_, std::memory_order_seq_cst);
    return !find_room(end_of(room), room.spare);
  }

  // So much of the payload ring is to be used, as soon as nothing lies in it: until then nothing more does.
  void use_ring(RingWidth width) { wanted_width_ = width; }
  RingWidth wanted_width() const { return wanted_width_; }
  bool is_wide() const { return wanted_width_ != RingWidth::kNarrow; }
  // Only the beginning is to be used from now on. False: something lies in the ring, or no entry is free.
  bool narrow() {
    if (!find_room(payload_next_, 0) || payload_freed_ != payload_next_) return false;
    wanted_width_ = RingWidth::kNarrow;
    if (width_ != wanted_width_) put_mark();
    return true;
  }
  // Whether the reader fetches what is lent.
  bool may_lend() const { return reader_->takes_lent.load(std::memory_order_relaxed) == 1; }
  // What a narrow lane leaves alone.
  std::span<std::byte> beyond_narrow_ring() const {
    return std::span(lane_->payload).subspan(ring_bytes<Format>(RingWidth::kNarrow));
  }
  // How often a payload found no room. Free-running.
  uint32_t times_full() const { return times_full_; }
  // How much has lain in the payload ring so far. Free-running.
  uint32_t payload_position() const { return payload_bytes_; }

  // How many entries have been put so far, free-running; and whether the reader has given back as many. One
  // that was read is given back when the reader finds no more, or soon.
  uint32_t put_so_far() const { return next_; }
  bool is_given_back(uint32_t so_far) const {
    const uint32_t consumed = latest_consumed(std::memory_order_acquire);
    return broken_ || !is_possible(consumed) || static_cast<int32_t>(consumed - so_far) >= 0;
  }

  // The reader claims to have taken what was never put. Nothing more can be put.
  bool is_broken() const { return broken_; }

 private:
  // What goes into the line fits always. Nothing else does before the ring is empty, if it is to be another.
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

  // Where the payload of the next entry would end in the ring.
  uint32_t end_of(Room room) const { return next_place(room.payload_bytes).end; }
  PayloadPlace next_place(uint32_t payload_bytes) const {
    return place_payload(payload_next_, payload_bytes, ring_bytes_);
  }

  // From the next entry on the payload ring is as is wanted. REQUIRES: nothing lies in it, an entry is free
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

  // Whether the next payload is to lie at the ring's start: nothing is in the ring, and little has been since
  // it began. So messages that wait for each other use the same lines again, which are in their processors'
  // first caches. Those that follow each other would wait for lines that the reader has only just left.
  bool begins_again() const {
    const uint32_t used = payload_next_ & (ring_bytes_ - 1);
    return payload_freed_ == payload_next_ && used - 1 < Format::kMaxUsedAgain;
  }
  uint32_t start() const { return next_start(payload_next_, ring_bytes_); }
  // REQUIRES: begins_again(), of which it is the start()
  void begin_again(uint32_t start) {
    // Those that are still to be taken have nothing in the ring, but say until where it is free.
    for (uint32_t index = consumed_; index != next_; ++index) payload_ends_[index % Format::kEntries] = start;
    payload_freed_ = start;
  }

  // The reader's counter, which may be behind what it has told otherwise.
  uint32_t latest_consumed(std::memory_order order) const {
    const uint32_t consumed = reader_->consumed.load(order);
    return consumed_ - consumed <= Format::kEntries ? consumed_ : consumed;
  }
  bool is_possible(uint32_t consumed) const { return consumed - consumed_ <= next_ - consumed_; }

  // Until where the payload ring is free when this many entries have been consumed.
  uint32_t payload_freed_at(uint32_t consumed) const {
    return consumed == consumed_ ? payload_freed_ : payload_ends_[(consumed - 1) % Format::kEntries];
  }

  // REQUIRES: is_possible(consumed)
  void note_consumed(uint32_t consumed) {
    payload_freed_ = payload_freed_at(consumed);
    consumed_ = consumed;
  }

  // Looks how far the reader is. True: there is room for an entry whose payload ends at `end`.
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

  // Where the next payload goes, if it is as long as this one, the lines are still the reader's: they are
  // fetched while nobody waits for them. Not while the reader may have to read them.
  void fetch_next_place(uint32_t payload_bytes) {
    const PayloadPlace place = next_place(payload_bytes);
    if (!fits_ring(place.end, payload_freed_)) return;
    const std::byte* const at = lane_->payload + (place.begin & (ring_bytes_ - 1));
    for (uint32_t offset = 0; offset < place.end - place.begin; offset += kCacheLine) {
      prefetch_for_write(at + offset);
    }
  }

  Lane* lane_;
  const Lane* reader_;          // where the reader's words are; lane_ if it can be written
  uint32_t next_;               // the index of the next entry
  uint32_t looked_at_;          // next_ when must_ring() looked
  uint32_t consumed_;           // the reader's counter, as last seen or told
  uint32_t payload_next_;       // free-running positions in the payload ring: the next payload,
  uint32_t payload_freed_;      // and until where the reader has given it back
  uint32_t payload_bytes_ = 0;  // that have lain in the ring
  uint32_t taken_ = 0;          // of the other lane
  RingWidth width_ = RingWidth::kNarrow;
  RingWidth wanted_width_ = RingWidth::kNarrow;  // when it is empty
  uint32_t ring_bytes_ = ring_bytes<Format>(RingWidth::kNarrow);
  uint32_t times_full_ = 0;
  Room waits_for_;
  bool waits_ = false;     // writer_waits may be set
  uint32_t asks_ = 1;      // its last value; odd, so never 0
  uint32_t answered_ = 0;  // the value of reader_sleeps for which the reader was rung last
  bool broken_ = false;
  // Where the payload of each entry ends, or that of the one before if it has none in the ring.
  std::array<uint32_t, Format::kEntries> payload_ends_{};
};

using LaneWriter = BasicLaneWriter<LaneFormat>;

}  // namespace verbena::shm
