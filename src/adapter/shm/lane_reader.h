// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "adapter/shm/layout.h"
#include "base/bytes.h"
#include "base/cache_line.h"

namespace verbena::shm {

// The reading end of a lane. One thread at a time.
//
// The caller calls next() until there is no entry, and then take_back(), which gives the entries back to the
// writer. It also calls take_back() in between, whenever is_much_read() returns true. Before the caller
// sleeps, it calls sleep(), which checks for entries once more. "To ring" means to wake the other process
// (LocalLine::ring()); the caller does that when take_back() returns true.
//
// The writer is untrusted and may write at any time: an entry is copied, then checked, then used.
template <class Format>
class BasicLaneReader {
 public:
  using Lane = BasicLane<Format>;

  struct Read {
    EntryKind kind;
    ConstBytes head;     // a private copy
    ConstBytes payload;  // a private copy up to kMaxCopied; a longer one may change while it is read
  };

  // `first`: the index at which counting begins, as given to format().
  explicit BasicLaneReader(Lane& lane, uint32_t first = 0) : BasicLaneReader(lane, lane, first) {}
  // For a channel of two halves (ChannelHalf). `lane` is in the other process's half, and is only read. `own`
  // is in our half, and holds the words that this reader writes (`consumed`, `reader_sleeps`). The payload
  // ring stays narrow.
  BasicLaneReader(const Lane& lane, Lane& own, uint32_t first = 0)
      : lane_(&lane),
        own_(&own),
        next_(first),
        given_back_(first),
        payload_next_(first_payload_position(first)),
        payload_given_back_(payload_next_) {}

  // The lane with the words that the reader writes.
  Lane& lane() { return *own_; }

  // Returns whether there is an entry to read, or a broken lane.
  bool is_something_there() const {
    return lane_->entries[next_ % Format::kEntries].sequence.load(std::memory_order_acquire) == next_ + 1;
  }

  // Reads the next entry, which stays valid until the next call of next() or take_back(). Returns false if
  // there is none, or the lane is broken.
  bool next(Read& read) {
    if (entry().sequence.load(std::memory_order_acquire) != next_ + 1 || broken_) return false;
    std::memcpy(&content_, &entry().content, sizeof content_);
    // From here on only the copy counts: the compiler must not look at the original again.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!is_valid(content_) || (is_of_ring(content_.kind) && own_ != lane_)) [[unlikely]] {
      broken_ = true;
      return false;
    }
    ++next_;
    if (is_of_ring(content_.kind)) [[unlikely]]
      ring_bytes_ = ring_bytes<Format>(width_of(content_.kind));
    read.kind = content_.kind;
    read.head = {content_.body, content_.head_bytes};
    read.payload = payload();
    return true;
  }

  // Gives back to the writer all entries that were read. Returns true if the writer waits for room and the
  // caller must ring (wake) it now.
  bool take_back() {
    if (given_back_ == next_) return false;
    given_back_ = next_;
    payload_given_back_ = payload_next_;
    // The writer says that it waits and then looks at `consumed`: one of us sees the other.
    own_->consumed.store(next_, std::memory_order_seq_cst);
    const uint32_t asks = lane_->writer_waits.load(std::memory_order_seq_cst);
    if (asks == 0) return false;
    if (own_ == lane_) return own_->writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
    return std::exchange(answered_, asks) != asks;
  }

  // read_so_far() returns how many entries were read from this lane. taken_by_writer() returns how many
  // entries of the opposite lane the writer has read, as its latest entry in this lane says. Both counts wrap
  // at 2^32. They are passed to say_taken() and hear_taken() of the LaneWriter of the opposite lane.
  // REQUIRES: when read_so_far() is passed on, no entry that was read is in use any more
  uint32_t read_so_far() const { return next_; }
  uint32_t taken_by_writer() const { return content_.taken; }

  // Returns whether take_back() has entries to give back.
  bool is_anything_read() const { return given_back_ != next_; }

  // Returns whether a quarter of the lane's entries, or of the narrow ring, has been read and not given back.
  // The caller should then call take_back(), so that the writer can go on before the lane is full.
  bool is_much_read() const {
    return next_ - given_back_ >= Format::kEntries / 4 ||
           payload_next_ - payload_given_back_ >= ring_bytes<Format>(RingWidth::kNarrow) / 4;
  }

  // Prepares to sleep: asks the writer to ring when it puts an entry. Returns true if the caller may sleep.
  // Returns false, and takes the request back, if there already is an entry. Also returns true if the lane is
  // broken, because no entry will come. REQUIRES: take_back() was called after the last next()
  bool sleep() {
    if (broken_) return true;
    asleep_ = true;
    if (own_ != lane_) asks_ += 2;
    own_->reader_sleeps.store(asks_, std::memory_order_seq_cst);
    if (entry().sequence.load(std::memory_order_seq_cst) != next_ + 1) return true;
    wake();
    return false;
  }

  // Takes the request to ring back. The writer may still ring once.
  void wake() {
    if (!asleep_) return;
    asleep_ = false;
    own_->reader_sleeps.store(0, std::memory_order_relaxed);
  }

  // Returns whether the writer has written an invalid entry. Then no more is read.
  bool is_broken() const { return broken_; }

 private:
  static bool is_valid(const EntryContent& content) {
    if (is_of_ring(content.kind)) return content.head_bytes == 0 && content.payload_bytes == 0;
    return is_known(content.kind) && content.head_bytes <= kMaxHead &&
           content.payload_bytes <= Format::kMaxPayload;
  }

  const BasicEntry<Format>& entry() const { return lane_->entries[next_ % Format::kEntries]; }

  // Returns the payload of the entry in content_, and advances payload_next_.
  ConstBytes payload() {
    const uint32_t bytes = content_.payload_bytes;
    if (fits_in_line(content_.head_bytes, bytes)) return {content_.body + content_.head_bytes, bytes};
    if (content_.from_start != 0)
      payload_next_ = payload_given_back_ = next_start(payload_next_, ring_bytes_);
    const PayloadPlace place = place_payload(payload_next_, bytes, ring_bytes_);
    payload_next_ = place.end;
    const std::byte* from = lane_->payload + (place.begin & (ring_bytes_ - 1));
    if (bytes > Format::kMaxCopied) return {from, bytes};
    std::memcpy(copied_.data(), from, bytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return {copied_.data(), bytes};
  }

  const Lane* lane_;
  Lane* own_;                    // the lane with the words that we write; lane_ if there is only one
  uint32_t next_;                // the index of the next entry
  uint32_t given_back_;          // `consumed`, as we wrote it
  uint32_t payload_next_;        // free-running positions in the payload ring: the next payload,
  uint32_t payload_given_back_;  // and until where we gave it back
  uint32_t ring_bytes_ = ring_bytes<Format>(RingWidth::kNarrow);
  bool asleep_ = false;    // reader_sleeps may be set
  uint32_t asks_ = 1;      // the last value of reader_sleeps; odd, so never 0
  uint32_t answered_ = 0;  // the value of writer_waits for which the writer was rung last
  bool broken_ = false;
  alignas(kCacheLine) EntryContent content_{};
  alignas(kCacheLine) std::array<std::byte, Format::kMaxCopied> copied_;
};

using LaneReader = BasicLaneReader<LaneFormat>;

}  // namespace verbena::shm
