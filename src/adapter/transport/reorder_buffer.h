// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "wire/roce/packet.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// A set of PSNs within a window, as disjoint ranges in PSN order. Operations take time proportional to the
// number of ranges, not of PSNs.
//
// Threads: the caller holds the shard's lock. Allocates only while it grows. REQUIRES: less than half of all
// PSNs lie between any two in the set.
class PsnRanges {
 public:
  // Max number of ranges. Limits the memory if a peer leaves out every other packet.
  static constexpr size_t kMax = 4096;
  struct Range {
    roce::Psn first;
    roce::Psn limit;
  };

  size_t size() const { return ranges_.size(); }

  // Adds [first, limit). Returns false, without effect, if there are too many ranges or memory has run out.
  bool add(roce::Psn first, roce::Psn limit) {
    // Merges the ranges that it touches.
    const auto begin = std::partition_point(ranges_.begin(), ranges_.end(),
                                            [first](const Range& r) { return r.limit.is_before(first); });
    auto end = begin;
    for (; end != ranges_.end() && !end->first.is_after(limit); ++end) {
      if (end->first.is_before(first)) first = end->first;
      if (end->limit.is_after(limit)) limit = end->limit;
    }
    if (begin == end) return insert(begin, {first, limit});
    *begin = {first, limit};
    ranges_.erase(begin + 1, end);
    return true;
  }

  // Removes all PSNs before `limit`.
  void drop_before(roce::Psn limit) {
    const auto end = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [limit](const Range& r) { return !r.limit.is_after(limit); });
    ranges_.erase(ranges_.begin(), end);
    if (!ranges_.empty() && ranges_.front().first.is_before(limit)) ranges_.front().first = limit;
  }

  // Removes all PSNs and frees the memory, which an assignment would keep.
  void clear() { std::vector<Range>().swap(ranges_); }

  // Calls visit(first, limit) for each range from `from` on, until visit returns false.
  template <class Visit>
  void for_each(roce::Psn from, Visit visit) const {
    for (const Range& range : ranges_) {
      if (!range.limit.is_after(from)) continue;
      if (!visit(range.first.is_before(from) ? from : range.first, range.limit)) return;
    }
  }

 private:
  bool insert(std::vector<Range>::const_iterator before, const Range& range) {
    if (ranges_.size() >= kMax) return false;
    try {
      ranges_.insert(before, range);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  std::vector<Range> ranges_;
};

// A limit of bytes that several users, such as ReorderBuffers, share without fixed shares. A user may take
// more bytes if its total is then at most twice the number of bytes that are still free. So some bytes are
// always left for the next user. Thread-safe.
class ByteBudget {
 public:
  explicit constexpr ByteBudget(size_t most) : max_(most) {}

  // Takes `bytes` bytes for a user that already has `has` bytes. Returns false, and takes nothing, if the
  // limit forbids it.
  bool take(size_t bytes, size_t has) {
    const size_t used = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (used <= max_ && has + bytes <= 2 * (max_ - used)) return true;
    give_back(bytes);
    return false;
  }
  void give_back(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const size_t max_;
  std::atomic<size_t> used_{0};
};

// The budget that the reorder buffers of all QPs of the process share.
ByteBudget& budget_for_reorder_buffers();

// Reorder buffer of a responder: keeps request packets that came ahead of a missing packet, until the missing
// packet comes. Also keeps the expected packet and its followers while they wait for a receive request, or,
// in XRC, for other processes' answers to earlier requests. Packets that do not fit are dropped. That is
// always allowed: the peer sends a packet again until it is acknowledged. Keeping packets makes a loss cheap.
//
// Threads: the caller holds the shard's lock. Allocates memory only when it keeps packets.
class ReorderBuffer {
 public:
  // Max distance of a kept packet from the expected PSN, in PSNs.
  static constexpr uint32_t kMaxAhead = 1u << 17;

  explicit ReorderBuffer(ByteBudget& budget = budget_for_reorder_buffers()) : budget_(budget) {}
  ~ReorderBuffer() { clear(); }
  ReorderBuffer(const ReorderBuffer&) = delete;
  ReorderBuffer& operator=(const ReorderBuffer&) = delete;

  bool empty() const { return count_ == 0; }

  // Keeps a copy of a packet that uses `psns` PSNs. Returns false if there is no room (kMaxAhead, the budget,
  // memory), or if a copy of the packet is kept already. That copy then requests an acknowledgement if it or
  // `packet` does. REQUIRES: the packet is not before `expected`
  bool add(const roce::Packet& packet, uint32_t psns, roce::Psn expected);
  // Whether the packet with this first PSN is kept.
  bool has(roce::Psn psn) const;
  // Whether a packet after `psn` is kept.
  bool has_after(roce::Psn psn) const { return count_ > 0 && psn.is_before(furthest_); }
  // Returns the kept packet, valid until erase() or clear(). REQUIRES: has(psn)
  roce::Packet at(roce::Psn psn) const;
  // Frees a packet. REQUIRES: has(psn); this packet and everything before it was executed
  void erase(roce::Psn psn);
  void clear();

  // Calls visit(first PSN, number of PSNs) for each range of consecutive PSNs in the buffer, in order from
  // `expected` on, until visit returns false.
  template <class Visit>
  void for_each_range(roce::Psn expected, Visit visit) const {
    ranges_.for_each(expected, [&](roce::Psn first, roce::Psn limit) {
      return visit(first, static_cast<uint32_t>(limit - first));
    });
  }

 private:
  struct Entry {
    roce::Headers headers;
    uint32_t psns;
    uint32_t bytes;
    std::byte* payload() { return reinterpret_cast<std::byte*>(this + 1); }
  };
  // Bytes that a packet takes from the budget besides its payload; it may need a range of its own.
  static constexpr size_t kEntryBytes = sizeof(Entry) + sizeof(PsnRanges::Range);

  bool take(size_t bytes) {
    if (!budget_.take(bytes, bytes_)) return false;
    bytes_ += bytes;
    return true;
  }
  void give_back(size_t bytes) {
    budget_.give_back(bytes);
    bytes_ -= bytes;
  }
  size_t slot_of(roce::Psn psn) const { return psn.value() & (slots_.size() - 1); }
  bool put(const roce::Packet& packet, uint32_t psns);
  void drop_slots();
  void free(Entry*& slot);
  bool grow_for(uint32_t ahead);

  ByteBudget& budget_;
  size_t bytes_ = 0;  // taken from the budget
  std::vector<Entry*>
      slots_;  // by PSN; a power of two, larger than the distance of the furthest packet; none if empty
  PsnRanges ranges_;  // of the packets here
  uint32_t count_ = 0;
  roce::Psn furthest_;  // largest first PSN of the packets here
};

}  // namespace verbena::transport
