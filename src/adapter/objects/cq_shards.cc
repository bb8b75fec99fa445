// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/cq_shards.h"

#include <algorithm>

namespace verbena::adapter {

CqShards::Member* CqShards::find(const engine::Shard& shard) {
  for (Member& member : members_) {
    if (member.shard.load(std::memory_order_relaxed) == &shard) return &member;
  }
  return nullptr;
}

void CqShards::join(engine::Shard& shard) {
  const std::lock_guard guard(lock_);
  Member* member = find(shard);
  if (member == nullptr) {  // a free place exists: there are as many as there can be shards
    member = std::ranges::find_if(members_, [](const Member& m) { return m.users == 0; });
    member->shard.store(&shard, std::memory_order_release);
    const auto place = static_cast<uint32_t>(member - members_.data());
    used_.store(std::max(used_.load(std::memory_order_relaxed), place + 1), std::memory_order_release);
  }
  ++member->users;
}

// Cancels the alarm first, because another shard may get the place next.
void CqShards::leave(engine::Shard& shard) {
  if (const Member* known = find(shard); known != nullptr && known->may_be_set.load())
    shard.exclusively([&] { cancel_alarm(shard); });
  const std::lock_guard guard(lock_);
  Member* member = find(shard);
  if (member != nullptr && --member->users == 0) member->shard.store(nullptr, std::memory_order_release);
}

engine::Shard* CqShards::first() const {
  for (const Member& member : members_) {
    if (engine::Shard* shard = member.shard.load(std::memory_order_acquire)) return shard;
  }
  return nullptr;
}

engine::Shard* CqShards::only() const {
  engine::Shard* only = nullptr;
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    engine::Shard* shard = members_[i].shard.load(std::memory_order_acquire);
    if (shard == nullptr) continue;
    if (only != nullptr) return nullptr;
    only = shard;
  }
  return only;
}

bool CqShards::set_alarm(engine::Shard& shard, queues::CompletionQueue& queue, Duration after) {
  Member* member = find(shard);
  if (member == nullptr) return false;
  member->queue = &queue;
  member->may_be_set.store(true, std::memory_order_relaxed);
  shard.set_alarm(*member, after);
  return true;
}

void CqShards::cancel_alarm(engine::Shard& shard) {
  if (Member* member = find(shard)) shard.cancel_alarm(*member);
}

void CqShards::cancel_alarms() {
  for (Member& member : members_) {
    engine::Shard* shard = member.shard.load(std::memory_order_acquire);
    if (shard != nullptr && member.may_be_set.load())
      shard->exclusively([&] { shard->cancel_alarm(member); });
  }
}

}  // namespace verbena::adapter
