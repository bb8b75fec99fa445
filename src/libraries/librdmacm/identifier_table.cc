// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/identifier_table.h"

#include <cerrno>
#include <unordered_set>
#include <utility>

#include "base/failed_call.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

uint32_t IdentifierTable::draw_number() {
  const std::lock_guard lock(mutex_);
  return draw();
}

uint32_t IdentifierTable::draw() {
  constexpr uint32_t kLast = protocol::kCmAgentsNumber - 1;
  do {
    last_number_ = last_number_ % kLast + 1;
  } while (identifiers_.contains(Identifier::key(last_number_, 0)) ||
           channel_numbers_.contains(last_number_));
  return last_number_;
}

void IdentifierTable::add(std::shared_ptr<Channel> channel) {
  const std::lock_guard lock(mutex_);
  channel_numbers_.insert(channel->number());
  const rdma_event_channel* const key = channel.get();
  channels_.emplace(key, std::move(channel));
}

void IdentifierTable::remove(const Channel& channel) {
  std::shared_ptr<Channel> last;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = channels_.find(&channel);
  if (found == channels_.end()) return;
  last = std::move(found->second);
  channel_numbers_.erase(channel.number());
  channels_.erase(found);
  removed_ = &channel;
  removed_at_ = MonotonicClock::now();
}

bool IdentifierTable::was_just_removed(const rdma_event_channel* channel) {
  constexpr Duration kJust = std::chrono::milliseconds(100);
  const std::lock_guard lock(mutex_);
  return channel == removed_ && MonotonicClock::now() - removed_at_ < kJust;
}

std::vector<std::shared_ptr<Channel>> IdentifierTable::channels() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Channel>> all;
  for (const auto& [key, channel] : channels_) all.push_back(channel);
  return all;
}

Result<std::shared_ptr<Channel>> IdentifierTable::find(const rdma_event_channel* channel) {
  const std::lock_guard lock(mutex_);
  const auto found = channels_.find(channel);
  if (found == channels_.end())
    return fail(because(EBADF, "event channel {} was destroyed, or never existed", verbena::ptr(channel)));
  return found->second;
}

void IdentifierTable::add(Identifier& identifier) {
  const std::lock_guard lock(mutex_);
  for (const uint64_t key : identifier.keys) identifiers_[key] = &identifier;
}

void IdentifierTable::begin_removal(const Identifier& identifier) {
  const std::lock_guard lock(mutex_);
  ending_.insert(&identifier);
}

void IdentifierTable::remove(Identifier& identifier) {
  const std::lock_guard lock(mutex_);
  ending_.erase(&identifier);
  for (const uint64_t key : identifier.keys) {
    const auto found = identifiers_.find(key);
    if (found != identifiers_.end() && found->second == &identifier) identifiers_.erase(found);
  }
}

void IdentifierTable::renumber(Identifier& identifier) {
  const uint32_t number = draw();
  const uint64_t key = Identifier::key(number, 0);
  identifiers_[key] = &identifier;
  const std::lock_guard own(identifier.mutex);
  identifier.number = number;
  identifier.numbered_by = 0;
  identifier.keys.push_back(key);
}

Identifier* IdentifierTable::deliver(const protocol::CmEvent& event) {
  const uint32_t number = event.listener != 0 ? event.listener : event.id;
  const std::lock_guard lock(mutex_);
  const auto found = identifiers_.find(Identifier::key(number, event.generation));
  if (found == identifiers_.end()) return nullptr;
  return found->second->count_delivery(event) ? found->second : nullptr;
}

bool IdentifierTable::empty() {
  const std::lock_guard lock(mutex_);
  return identifiers_.empty() && channels_.empty();
}

void IdentifierTable::for_each(const std::function<void(Identifier&)>& visit) {
  const std::lock_guard lock(mutex_);
  std::unordered_set<Identifier*> each;
  for (const auto& [key, identifier] : identifiers_) {
    if (!ending_.contains(identifier)) each.insert(identifier);
  }
  for (Identifier* identifier : each) visit(*identifier);
}

}  // namespace verbena::rdmacm
