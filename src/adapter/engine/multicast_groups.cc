// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/multicast_groups.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace verbena::engine {

MulticastGroups::~MulticastGroups() {
  for (Entry& entry : groups_) shard_.exclusively([&] { leave(*entry.group); });
}

// Inside Shard::exclusively().
void MulticastGroups::leave(MulticastGroup& group) {
  shard_.remove_input(group);
  if (local_ != nullptr) local_->forget(group);
}

Result<void> MulticastGroups::attach(const Key& key, const transport::Attachment& attachment) {
  const std::lock_guard guard(mutex_);
  const auto known = std::ranges::find(groups_, key, &Entry::key);
  if (known == groups_.end()) return join(key, attachment);
  return shard_.exclusively([&] { return known->group->members().attach(attachment); });
}

// REQUIRES: mutex_ is held
Result<void> MulticastGroups::join(const Key& key, const transport::Attachment& attachment) {
  const uint32_t interface = surroundings_.interface_of(key.device_index);
  if (interface == 0) return fail(ENODEV);
  if (groups_.size() >= kMax) return fail(ENOMEM);
  Result<UniqueFd> socket = surroundings_.join(key);
  if (!socket) return tl::unexpected(socket.error());
  try {
    groups_.reserve(groups_.size() + 1);
    auto group = std::make_unique<MulticastGroup>(
        shard_, key.group, interface, std::move(*socket),
        [this, device = key.device_index](const roce::Address& a) {
          return surroundings_.is_address_of(device, a);
        },
        local_);
    const Result<void> added = shard_.exclusively([&]() -> Result<void> {
      if (auto attached = group->members().attach(attachment); !attached) return attached;
      if (auto heard = shard_.add_input(*group); !heard) return heard;
      if (local_ != nullptr) local_->add(*group);
      return {};
    });
    if (added) groups_.push_back({key, std::move(group)});
    return added;
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

bool MulticastGroups::detach(const Key& key, const transport::QueuePair& qp) {
  const std::lock_guard guard(mutex_);
  const auto known = std::ranges::find(groups_, key, &Entry::key);
  if (known == groups_.end()) return false;
  const bool detached = shard_.exclusively([&] {
    const bool was_attached = known->group->members().detach(qp);
    if (known->group->members().empty()) leave(*known->group);
    return was_attached;
  });
  if (known->group->members().empty()) groups_.erase(known);
  return detached;
}

}  // namespace verbena::engine
