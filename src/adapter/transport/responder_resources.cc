// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/responder_resources.h"

#include <algorithm>

namespace verbena::transport {

using roce::Psn;

void ResponderResources::start(uint32_t most) {
  saved_.assign(std::max(most, 1u), Resource{});
  ring_.assign(2 * saved_.size(), Reply{});
  next_saved_ = first_ = count_ = repeated_ = 0;
}

bool ResponderResources::add(const Resource& resource) {
  if (!queue(resource, false)) return false;
  saved_[next_saved_] = resource;
  next_saved_ = next_saved_ + 1 == saved_.size() ? 0 : next_saved_ + 1;
  return true;
}

const ResponderResources::Resource* ResponderResources::saved(Psn psn, Kind kind) const {
  const auto count = static_cast<uint32_t>(saved_.size());
  for (uint32_t age = 1; age <= count; ++age) {
    const Resource& r = saved_[(next_saved_ + count - age) % count];
    if (r.valid && r.kind == kind && !psn.is_before(r.first) && !psn.is_after(r.last)) return &r;
  }
  return nullptr;
}

void ResponderResources::repeat(const Resource& answer) {
  for (uint32_t place = 0; place < count_; ++place) {
    Reply& queued = at(place);
    if (queued.resource.last.is_before(answer.first) || answer.last.is_before(queued.resource.first)) {
      continue;
    }
    // This response is being sent. The part still to be sent need not be sent twice; the part already sent
    // starts again. A repetition of only a part is sent in addition, as the rest is wanted, too.
    if (queued.next.is_before(answer.first)) return;
    if (answer.last.is_before(queued.resource.last)) {
      if (queued.next == answer.first) return;
      continue;
    }
    queued.resource = answer;
    queued.next = answer.first;
    return;
  }
  queue(answer, true);
}

bool ResponderResources::queue(const Resource& resource, bool repeated) {
  if ((repeated ? repeated_ : count_ - repeated_) >= saved_.size()) return false;
  if (repeated) ++repeated_;
  uint32_t place = count_++;
  for (; place > 0 && at(place - 1).resource.first.is_after(resource.first); --place) {
    at(place) = at(place - 1);
  }
  at(place) = Reply{resource, resource.first, resource.first, repeated};
  return true;
}

}  // namespace verbena::transport
