// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// Loss scoreboard (RFC 6675): the holes below top(), ranges of PSNs that are missing although later packets
// have arrived. All other PSNs below top() have arrived.
//
// Threads: the caller holds the shard's lock. Allocates memory only while the number of holes grows, after a
// loss.
class LossScoreboard {
 public:
  // Max holes that fill() and extend() make.
  static constexpr size_t kMax = 4096;
  // Max holes while holes are split: the arrival or retransmission of a part of a hole may split it in two.
  static constexpr size_t kMaxParts = 2 * kMax;

  // Describes a retransmission of missing packets to sent_again().
  struct Repair {
    TimePoint at;            // when it was sent
    TimePoint answer_due{};  // when it should be acknowledged
    // If the hole just before the packets was sent again at most this long ago, the packets join that hole.
    Duration together{0};
    bool asked = false;  // the packets are of a READ or atomic, whose request was sent again
  };

  // A range of missing PSNs, and the state of its repair.
  struct Hole {
    roce::Psn first;
    roce::Psn limit;  // after the last missing PSN
    TimePoint since;  // when it was noticed missing, or last sent again
    // When the latest retransmission should be acknowledged, judged by the RTT when it was sent. The present
    // RTT may be shorter, because a queue on the path has emptied since, but the retransmission had to wait
    // in that queue. TimePoint{} before the first retransmission.
    TimePoint answer_due{};
    bool lost = false;   // it must be sent again
    bool again = false;  // it has been sent again
    bool asked = false;  // `again`, by repeating the request of a READ or atomic
    bool begun =
        false;  // `asked`, and the response has begun to arrive; `since` is when its latest part came

    // Call when everything before this hole has arrived. If the request of a READ or atomic was repeated for
    // this hole, notes that its response has begun to arrive.
    void begin(TimePoint now) {
      if (!asked || !again || lost) return;
      begun = true;
      since = now;
    }
    // Whether this hole may be extended by the packets from `at` on, which are being sent again now. It may
    // if it ends at `at`, and its own packets were sent again at `earliest` or later.
    bool may_grow(roce::Psn at, TimePoint earliest) const {
      return again && !lost && !asked && limit == at && since >= earliest;
    }
    // Notes that the hole was sent again.
    void resent(const Repair& repair) {
      lost = begun = false;
      again = true;
      asked = repair.asked;
      since = repair.at;
      answer_due = repair.answer_due;
    }
  };

  // Removes all holes: nothing is missing, and packets from `top` on are in flight.
  void reset(roce::Psn top) {
    scoreboard_.clear();
    top_ = top;
  }
  roce::Psn top() const { return top_; }
  bool empty() const { return scoreboard_.empty(); }
  const std::vector<Hole>& all() const { return scoreboard_; }
  std::vector<Hole>& all() { return scoreboard_; }

  // Call when everything before `limit` is acknowledged. Removes the holes before `limit`, and moves top() up
  // to it.
  void advance(roce::Psn limit, TimePoint now);

  enum class State : uint8_t {
    kUnderWay,  // in flight or late: neither known to be lost nor sent again
    kLost,      // must be sent again
    kAgain,     // has been sent again
    kArrived,
  };

  // Notes that [first, limit) has arrived; PSNs between top() and `first` become a hole. Calls arrived(from,
  // to, state) for each newly arrived part, with its previous state, and closed(hole) for each hole that is
  // filled completely or in part. Returns false, without effect, if there are too many holes for another one,
  // or memory has run out. If there is no room to split a hole, its arrived part stays missing and is sent
  // again; then also returns true.
  template <class Arrived, class Closed>
  bool fill(roce::Psn first, roce::Psn limit, TimePoint now, Arrived arrived, Closed closed) {
    if (!first.is_before(top_)) {
      if (first != top_ && !add({top_, first, now})) return false;
      arrived(first, limit, State::kUnderWay);
      top_ = limit;
      return true;
    }
    if (limit.is_after(top_)) {
      arrived(top_, limit, State::kUnderWay);
      top_ = limit;
    }
    for (size_t i = place_of(first); i < scoreboard_.size();) {
      // Erases the holes within the range together.
      size_t rest = i;
      for (; rest < scoreboard_.size(); ++rest) {
        const Hole& whole = scoreboard_[rest];
        if (whole.first.is_before(first) || whole.limit.is_after(limit)) break;
        closed(whole);
        arrived(whole.first, whole.limit, state_of(whole));
      }
      if (rest > i) {
        scoreboard_.erase(scoreboard_.begin() + static_cast<ptrdiff_t>(i),
                          scoreboard_.begin() + static_cast<ptrdiff_t>(rest));
        continue;
      }
      const Hole hole = scoreboard_[i];
      if (!hole.first.is_before(limit)) break;
      const roce::Psn from = hole.first.is_before(first) ? first : hole.first;
      const roce::Psn to = hole.limit.is_after(limit) ? limit : hole.limit;
      // Without room for the rest, the whole hole stays missing: its arrived part is sent twice.
      if (from != hole.first && to != hole.limit && !has_room(kMaxParts)) break;
      closed(hole);
      arrived(from, to, state_of(hole));
      i = cut(i, from, to, now);
    }
    return true;
  }

  // Makes [top(), limit) a hole, if `limit` is after top(). Returns false, without effect, if there are too
  // many holes or memory has run out.
  bool extend(roce::Psn limit, TimePoint now) {
    if (!limit.is_after(top_)) return true;
    if (!add({top_, limit, now})) return false;
    top_ = limit;
    return true;
  }

  // Calls visit(from, to, state) for the parts of [from, limit) that have one state each, in PSN order.
  template <class Visit>
  void for_each_part(roce::Psn from, roce::Psn limit, Visit visit) const {
    for (const Hole& hole : scoreboard_) {
      if (!from.is_before(limit)) return;
      if (!hole.limit.is_after(from)) continue;
      if (!hole.first.is_before(limit)) break;
      if (from.is_before(hole.first)) visit(from, hole.first, State::kArrived);
      const roce::Psn begin = from.is_before(hole.first) ? hole.first : from;
      const roce::Psn end = hole.limit.is_after(limit) ? limit : hole.limit;
      visit(begin, end, state_of(hole));
      from = end;
    }
    if (from.is_before(limit) && from.is_before(top_)) {
      const roce::Psn end = top_.is_after(limit) ? limit : top_;
      visit(from, end, State::kArrived);
      from = end;
    }
    if (from.is_before(limit)) visit(from, limit, State::kUnderWay);
  }

  // Returns the first hole that must be sent again; nullptr if there is none.
  const Hole* first_lost() const;
  // Notes that all packets before `limit` in holes whose `lost` is true were sent again as `repair` says.
  // Calls again(from, to) for each range of these packets.
  template <class Again>
  void sent_again(roce::Psn limit, const Repair& repair, Again again) {
    for (size_t i = 0; i < scoreboard_.size() && scoreboard_[i].first.is_before(limit); ++i) {
      const Hole hole = scoreboard_[i];
      if (!hole.lost) continue;
      const bool has_rest = limit.is_before(hole.limit);
      const roce::Psn to = has_rest ? limit : hole.limit;
      again(hole.first, to);
      if (!repair.asked && i > 0 && scoreboard_[i - 1].may_grow(hole.first, repair.at - repair.together)) {
        scoreboard_[i - 1].limit = to;
        scoreboard_[i - 1].answer_due = repair.answer_due;
        cut(i--, hole.first, to, repair.at);
        continue;
      }
      // Without room to split, the rest counts as sent again too.
      if (has_rest && has_room(kMaxParts)) split(i, limit);
      scoreboard_[i].resent(repair);
    }
  }

 private:
  static State state_of(const Hole& hole) {
    return hole.lost ? State::kLost : hole.again ? State::kAgain : State::kUnderWay;
  }
  // Makes room for one more hole, up to `most` in total. Allocates if needed; the holes may move. Returns
  // false if there are `most` holes already or memory has run out.
  bool has_room(size_t most);
  bool add(const Hole& hole);
  // Index of the first hole that ends after `psn`.
  size_t place_of(roce::Psn psn) const {
    const auto at = std::partition_point(scoreboard_.begin(), scoreboard_.end(),
                                         [psn](const Hole& hole) { return !hole.limit.is_after(psn); });
    return static_cast<size_t>(at - scoreboard_.begin());
  }
  size_t cut(size_t place, roce::Psn from, roce::Psn to, TimePoint now);
  // Splits the hole at index `place` in two. REQUIRES: has_room(kMaxParts), and the hole lies on both sides
  // of `at`
  void split(size_t place, roce::Psn at);

  std::vector<Hole> scoreboard_;  // in PSN order, disjoint
  roce::Psn top_;
};

}  // namespace verbena::transport
