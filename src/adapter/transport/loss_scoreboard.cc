// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/loss_scoreboard.h"

#include <new>

namespace verbena::transport {

bool LossScoreboard::has_room(size_t most) {
  if (scoreboard_.size() >= most) return false;
  if (scoreboard_.size() < scoreboard_.capacity()) return true;
  try {
    scoreboard_.reserve(std::max<size_t>(2 * scoreboard_.size(), 4));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool LossScoreboard::add(const Hole& hole) {
  if (!has_room(kMax)) return false;
  scoreboard_.push_back(hole);
  return true;
}

void LossScoreboard::advance(roce::Psn limit, TimePoint now) {
  if (top_.is_before(limit)) top_ = limit;
  size_t gone = 0;
  while (gone < scoreboard_.size() && !scoreboard_[gone].limit.is_after(limit)) ++gone;
  scoreboard_.erase(scoreboard_.begin(), scoreboard_.begin() + static_cast<ptrdiff_t>(gone));
  if (scoreboard_.empty() || !scoreboard_.front().first.is_before(limit)) return;
  scoreboard_.front().first = limit;
  scoreboard_.front().begin(now);
}

// Removes [from, to) from a hole. Returns the index of the next hole to look at. REQUIRES:
// has_room(kMaxParts), if the range touches neither end of the hole
size_t LossScoreboard::cut(size_t place, roce::Psn from, roce::Psn to, TimePoint now) {
  Hole& hole = scoreboard_[place];
  const bool begins = hole.first == from;
  const bool ends = hole.limit == to;
  if (begins && ends) {
    scoreboard_.erase(scoreboard_.begin() + static_cast<ptrdiff_t>(place));
    return place;
  }
  if (begins) {
    hole.first = to;
    hole.begin(now);
  } else if (ends) {
    hole.limit = from;
  } else {
    Hole rest = hole;
    hole.limit = from;
    rest.first = to;
    rest.begin(now);
    scoreboard_.insert(scoreboard_.begin() + static_cast<ptrdiff_t>(place) + 1, rest);
  }
  return place + 1;
}

const LossScoreboard::Hole* LossScoreboard::first_lost() const {
  for (const Hole& hole : scoreboard_) {
    if (hole.lost) return &hole;
  }
  return nullptr;
}

void LossScoreboard::split(size_t place, roce::Psn at) {
  Hole rest = scoreboard_[place];
  rest.first = at;
  scoreboard_[place].limit = at;
  scoreboard_.insert(scoreboard_.begin() + static_cast<ptrdiff_t>(place) + 1, rest);
}

}  // namespace verbena::transport
