// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

// What is missing among packets of which later ones have arrived: ranges of PSNs below `top`. Everything else
// below top has arrived.
//
// For the shard's lock holder. Allocates only while it grows, behind a loss.
class LossScoreboard {
 public:
  static constexpr size_t kMax = 4096;
  // When parts of them are sent again, or arrive.
  static constexpr size_t kMaxParts = 2 * kMax;

  // Something missing is sent again.
  struct Repair {
    TimePoint at;
    TimePoint answer_due{};
    Duration together{0};  // parts that follow each other within that are one
    bool asked = false;    // for an answer that comes in its turn, among others
  };

  struct Hole {
    roce::Psn first;
    roce::Psn limit;
    TimePoint since;  // when it was noticed, or filled again and not closed by that
    // When its repair should be answered, by the round trip of the time when that was sent: a queue that it
    // had to wait in may be gone when the answer comes.
    TimePoint answer_due{};
    bool lost = false;   // it is to be sent again
    bool again = false;  // it has been
    bool asked = false;  // by a request for an answer, which comes before other answers that are to be given
    bool begun = false;  // that has begun to come: the rest is awaited from then on

    // What was before this rest of it has come.
    void begin(TimePoint now) {
      if (!asked || !again || lost) return;
      begun = true;
      since = now;
    }
    // What is sent again at its end may be a part of it: that was so, too, no earlier than `earliest`.
    bool may_grow(roce::Psn at, TimePoint earliest) const {
      return again && !lost && !asked && limit == at && since >= earliest;
    }
    // It has been sent again.
    void resent(const Repair& repair) {
      lost = begun = false;
      again = true;
      asked = repair.asked;
      since = repair.at;
      answer_due = repair.answer_due;
    }
  };

  // Nothing is missing; what was sent from `top` on is on its way.
  void reset(roce::Psn top) {
    scoreboard_.clear();
    top_ = top;
  }
  roce::Psn top() const { return top_; }
  bool empty() const { return scoreboard_.empty(); }
  const std::vector<Hole>& all() const { return scoreboard_; }
  std::vector<Hole>& all() { return scoreboard_; }

  // All before `limit` is done with.
  void advance(roce::Psn limit, TimePoint now);

  enum class State : uint8_t {
    kUnderWay,
    kLost,   // it is to be sent again
    kAgain,  // it has been
    kArrived,
  };

  // [first, limit) has arrived. What lies between top() and it is missing. Calls arrived(from, to, state) for
  // what had not been known, with the state in which it was, and closed(hole) for each hole that it fills, in
  // whole or in part. False: there are too many holes, and nothing was done.
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
      // Those that lie in it wholly go together.
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
      // Without room for the rest all of it stays missing: what has arrived of it is sent twice.
      if (from != hole.first && to != hole.limit && !has_room(kMaxParts)) break;
      closed(hole);
      arrived(from, to, state_of(hole));
      i = cut(i, from, to, now);
    }
    return true;
  }

  // [top(), limit) is missing besides, from now on. False: there are too many holes.
  bool extend(roce::Psn limit, TimePoint now) {
    if (!limit.is_after(top_)) return true;
    if (!add({top_, limit, now})) return false;
    top_ = limit;
    return true;
  }

  // Calls visit(from, to, state) for the parts of [from, limit).
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

  // The first that is to be sent again; nullptr: none is.
  const Hole* first_lost() const;
  // All that is lost before `limit` has been sent again. Calls again(from, to) for each part of it.
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
      // Without room for the rest it is awaited with what was sent.
      if (has_rest && has_room(kMaxParts)) split(i, limit);
      scoreboard_[i].resent(repair);
    }
  }

 private:
  static State state_of(const Hole& hole) {
    return hole.lost ? State::kLost : hole.again ? State::kAgain : State::kUnderWay;
  }
  // For one more of at most so many; it is allocated then. The holes may move.
  bool has_room(size_t most);
  bool add(const Hole& hole);
  // The first that does not lie wholly before it.
  size_t place_of(roce::Psn psn) const {
    const auto at = std::partition_point(scoreboard_.begin(), scoreboard_.end(),
                                         [psn](const Hole& hole) { return !hole.limit.is_after(psn); });
    return static_cast<size_t>(at - scoreboard_.begin());
  }
  size_t cut(size_t place, roce::Psn from, roce::Psn to, TimePoint now);
  // Makes two of it. REQUIRES: has_room(kMaxParts), and it lies on both sides of `at`
  void split(size_t place, roce::Psn at);

  std::vector<Hole> scoreboard_;  // in PSN order, disjoint
  roce::Psn top_;
};

}  // namespace verbena::transport
