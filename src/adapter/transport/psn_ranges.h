// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "wire/roce/psn.h"

namespace verbena::transport {

// Which PSNs of a window are there: ranges in PSN order, apart from each other. What is asked and changed
// takes as long as there are ranges, and not as there are PSNs.
//
// For the shard's lock holder. Allocates only while it grows. REQUIRES: less than half of all PSNs lie
// between any two that it is given.
class PsnRanges {
 public:
  // A peer that leaves out every other packet makes no more of them.
  static constexpr size_t kMax = 4096;
  struct Range {
    roce::Psn first;
    roce::Psn limit;
  };

  size_t size() const { return ranges_.size(); }

  // [first, limit) is there, too. False: there would be too many ranges, or there is no memory; nothing was
  // done then.
  bool add(roce::Psn first, roce::Psn limit) {
    // Those that it touches become one with it.
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

  // All before it is gone.
  void drop_before(roce::Psn limit) {
    const auto end = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [limit](const Range& r) { return !r.limit.is_after(limit); });
    ranges_.erase(ranges_.begin(), end);
    if (!ranges_.empty() && ranges_.front().first.is_before(limit)) ranges_.front().first = limit;
  }

  // An assignment would keep the memory.
  void clear() { std::vector<Range>().swap(ranges_); }

  // Calls visit(first, limit) for each range from `from` on, until it answers false.
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
