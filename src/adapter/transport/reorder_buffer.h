// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/transport/psn_ranges.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// Bytes that may be used, and are. There is no fixed share: one who has some may take more as long as that
// is at most twice what is then still free, so that the next to come finds some, whatever all before have
// taken. Any thread.
class ByteBudget {
 public:
  explicit constexpr ByteBudget(size_t most) : max_(most) {}

  // For one who has so many.
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

// What all QPs of the process may keep together.
ByteBudget& budget_for_reorder_buffers();

// Request packets that have come before one that is missing, until it comes. Besides, the expected one and
// what follows it, while it waits for a receive request, or in XRC for others to answer for those before. It
// is lawful to throw them away, as each is sent again until it is acknowledged; to keep them is what makes a
// loss cheap. It drops packets that do not fit.
//
// For the shard's lock holder. Allocates only behind a gap.
class ReorderBuffer {
 public:
  // So many PSNs beyond the one that is missing.
  static constexpr uint32_t kMaxAhead = 1u << 17;

  explicit ReorderBuffer(ByteBudget& budget = budget_for_reorder_buffers()) : budget_(budget) {}
  ~ReorderBuffer() { clear(); }
  ReorderBuffer(const ReorderBuffer&) = delete;
  ReorderBuffer& operator=(const ReorderBuffer&) = delete;

  bool empty() const { return count_ == 0; }

  // Keeps a copy of a packet that has so many PSNs. False: it is here already, and asks for an
  // acknowledgement if either copy does; or there is no room.
  // REQUIRES: it does not come before `expected`
  bool add(const roce::Packet& packet, uint32_t psns, roce::Psn expected);
  bool has(roce::Psn psn) const;
  // Whether there is one that comes after it.
  bool has_after(roce::Psn psn) const { return count_ > 0 && psn.is_before(furthest_); }
  // REQUIRES: has(psn). What is answered is good until erase() or clear().
  roce::Packet at(roce::Psn psn) const;
  // It is done with, and so is all before it. REQUIRES: has(psn)
  void erase(roce::Psn psn);
  // Forgets everything.
  void clear();

  // Calls visit(first PSN, count) for each run of PSNs that is there, in their order from `expected` on,
  // until it answers false.
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
  // What one counts for besides its payload: it may have a range of its own.
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
  size_t bytes_ = 0;  // of it
  std::vector<Entry*>
      slots_;  // by PSN; their number is a power of two, and larger than the furthest is ahead; none if empty
  PsnRanges ranges_;  // of those that are here
  uint32_t count_ = 0;
  roce::Psn furthest_;  // no packet that is here begins later
};

}  // namespace verbena::transport
