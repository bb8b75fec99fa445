// SPDX-License-Identifier: Apache-2.0
#include "transport/replies.h"

#include <algorithm>

namespace verbena::transport {

using roce::Psn;

void Replies::start(uint32_t most) {
  saved_.assign(std::max(most, 1u), Resource{});
  ring_.assign(saved_.size(), Reply{});
  next_saved_ = first_ = count_ = 0;
}

// A repeated answer makes room: a requester that sends a new request beyond max_dest_rd_atomic has got the
// old answer, and one that has not will ask again.
bool Replies::has_room() {
  if (count_ < ring_.size()) return true;
  for (uint32_t place = 0; place < count_; ++place) {
    if (!at(place).repeated) continue;
    erase(place);
    return true;
  }
  return false;
}

bool Replies::add(const Resource& resource) {
  if (!queue(resource, false)) return false;
  saved_[next_saved_] = resource;
  next_saved_ = next_saved_ + 1 == saved_.size() ? 0 : next_saved_ + 1;
  return true;
}

const Replies::Resource* Replies::saved(Psn psn, Kind kind) const {
  const auto count = static_cast<uint32_t>(saved_.size());
  for (uint32_t age = 1; age <= count; ++age) {
    const Resource& r = saved_[(next_saved_ + count - age) % count];
    if (r.valid && r.kind == kind && !psn.is_before(r.first) && !psn.is_after(r.last)) return &r;
  }
  return nullptr;
}

void Replies::repeat(const Resource& answer) {
  for (uint32_t place = 0; place < count_; ++place) {
    Reply& queued = at(place);
    if (queued.resource.last.is_before(answer.first) || answer.last.is_before(queued.resource.first)) {
      continue;
    }
    // It is being answered. What is still to be sent need not be sent twice; what was sent is begun again.
    if (!queued.next.is_before(answer.first)) {
      queued.resource = answer;
      queued.next = answer.first;
    }
    return;
  }
  queue(answer, true);
}

bool Replies::queue(const Resource& resource, bool repeated) {
  if (!has_room()) return false;
  uint32_t place = count_++;
  for (; place > 0 && at(place - 1).resource.first.is_after(resource.first); --place) {
    at(place) = at(place - 1);
  }
  at(place) = Reply{resource, resource.first, repeated};
  return true;
}

void Replies::erase(uint32_t place) {
  for (--count_; place < count_; ++place) at(place) = at(place + 1);
}

}  // namespace verbena::transport
