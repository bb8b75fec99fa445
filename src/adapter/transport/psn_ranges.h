// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "wire/roce/psn.h"

namespace verbena::transport {

// A set of PSNs within a window, as disjoint ranges in PSN order. Operations take time proportional to the
// number of ranges, not of PSNs.
//
// For the shard's lock holder. Allocates only while it grows. REQUIRES: less than half of all PSNs lie
// between any two in the set.
class PsnRanges {
 public:
  // Max ranges. Limits the memory if a peer leaves out every other packet.
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

}  // namespace verbena::transport
