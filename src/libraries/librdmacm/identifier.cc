// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/identifier.h"

#include <cstdlib>

#include "base/failed_call.h"
#include "base/log.h"
#include "base/mutex_at_fork.h"

namespace verbena::rdmacm {
namespace {

// All identifiers of this process. Never destroyed: application threads may outlive static objects.
struct LiveIdentifiers {
  std::mutex mutex;
  std::unordered_set<const rdma_cm_id*> all;
};

LiveIdentifiers& live() {
  static auto* const the_live = new LiveIdentifiers;
  return *the_live;
}

[[maybe_unused]] const int live_watched = lock_at_fork<[]() -> std::mutex& { return live().mutex; }>();

}  // namespace

bool Identifier::is_one(const rdma_cm_id* id) {
  const std::lock_guard lock(live().mutex);
  return live().all.contains(id);
}

Identifier::Identifier(Process& process_of, std::shared_ptr<Channel> channel_of, void* context_of,
                       rdma_port_space space, ibv_qp_type type)
    : rdma_cm_id{}, process(process_of), events(std::move(channel_of)) {
  channel = events.get();
  context = context_of;
  ps = space;
  qp_type = type;
  const std::lock_guard lock(live().mutex);
  live().all.insert(this);
}

Identifier::~Identifier() {
  {
    const std::lock_guard lock(live().mutex);
    live().all.erase(this);
  }
  if (device != nullptr) device->leave();
  std::free(route.path_rec);
  if (information != nullptr) rdma_freeaddrinfo(information);
}

bool Identifier::count_delivery(const protocol::CmEvent& message) {
  const std::lock_guard lock(mutex);
  if ((message.flags & protocol::kCmFromProgram) == 0) {
    if (std::exchange(agents_generation, message.generation) != message.generation) agents_events = 0;
    ++agents_events;
  }
  if (message.multicast != 0) {
    Membership* const found = find_membership(message.multicast);
    if (found == nullptr) return false;
    ++found->delivered;
  }
  ++delivered;
  return true;
}

void Identifier::acknowledge(uint32_t membership) {
  const std::lock_guard lock(mutex);
  ++acknowledged;
  if (Membership* const found = find_membership(membership)) ++found->acknowledged;
  acknowledged_one.notify_all();
}

void Identifier::wait_until_acknowledged(const char* call) {
  constexpr std::chrono::seconds kPatience(2);  // longer than a program needs to handle an event
  std::unique_lock lock(mutex);
  if (acknowledged_one.wait_for(lock, kPatience, [&] { return acknowledged >= delivered; })) return;
  log_error(
      "{}() of rdma_cm_id {} waits until the program acknowledges {} more event{} of it: call "
      "rdma_ack_cm_event()",
      call, verbena::ptr(static_cast<rdma_cm_id*>(this)), delivered - acknowledged,
      delivered - acknowledged == 1 ? "" : "s");
  acknowledged_one.wait(lock, [&] { return acknowledged >= delivered; });
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

void IdentifierTable::for_each(const std::function<void(Identifier&)>& visit) {
  const std::lock_guard lock(mutex_);
  std::unordered_set<Identifier*> each;
  for (const auto& [key, identifier] : identifiers_) {
    if (!ending_.contains(identifier)) each.insert(identifier);
  }
  for (Identifier* identifier : each) visit(*identifier);
}

}  // namespace verbena::rdmacm
