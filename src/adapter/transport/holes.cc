// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/holes.h"

#include <new>

namespace verbena::transport {

bool Holes::has_room(size_t most) {
  if (holes_.size() >= most) return false;
  if (holes_.size() < holes_.capacity()) return true;
  try {
    holes_.reserve(std::max<size_t>(2 * holes_.size(), 4));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool Holes::add(const Hole& hole) {
  if (!has_room(kMost)) return false;
  holes_.push_back(hole);
  return true;
}

void Holes::advance(roce::Psn limit, TimePoint now) {
  if (top_.is_before(limit)) top_ = limit;
  size_t gone = 0;
  while (gone < holes_.size() && !holes_[gone].limit.is_after(limit)) ++gone;
  holes_.erase(holes_.begin(), holes_.begin() + static_cast<ptrdiff_t>(gone));
  if (holes_.empty() || !holes_.front().first.is_before(limit)) return;
  holes_.front().first = limit;
  holes_.front().begin(now);
}

// Takes [from, to) out of a hole. Returns the place of the next one to look at. REQUIRES:
// has_room(kMostParts), if it is in its midst
size_t Holes::cut(size_t place, roce::Psn from, roce::Psn to, TimePoint now) {
  Hole& hole = holes_[place];
  const bool begins = hole.first == from;
  const bool ends = hole.limit == to;
  if (begins && ends) {
    holes_.erase(holes_.begin() + static_cast<ptrdiff_t>(place));
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
    holes_.insert(holes_.begin() + static_cast<ptrdiff_t>(place) + 1, rest);
  }
  return place + 1;
}

const Holes::Hole* Holes::first_lost() const {
  for (const Hole& hole : holes_) {
    if (hole.lost) return &hole;
  }
  return nullptr;
}

void Holes::split(size_t place, roce::Psn at) {
  Hole rest = holes_[place];
  rest.first = at;
  holes_[place].limit = at;
  holes_.insert(holes_.begin() + static_cast<ptrdiff_t>(place) + 1, rest);
}

}  // namespace verbena::transport
