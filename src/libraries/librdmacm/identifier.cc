// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/identifier.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <unordered_set>
#include <utility>

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
    const auto of_number = [&](const Membership& each) { return each.number == message.multicast; };
    const auto found = std::find_if(memberships.begin(), memberships.end(), of_number);
    if (found == memberships.end()) return false;
    ++found->delivered;
  }
  ++delivered;
  return true;
}

bool Identifier::has_all_events(uint32_t sent, uint32_t generation) {
  const std::lock_guard lock(mutex);
  return sent == 0 || (generation == agents_generation && sent == agents_events);
}

void Identifier::acknowledge(uint32_t membership) {
  const std::lock_guard lock(mutex);
  ++acknowledged;
  for (Membership& each : memberships) {
    if (membership != 0 && each.number == membership) ++each.acknowledged;
  }
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

bool Identifier::was_told_by(uint32_t generation) {
  const std::lock_guard lock(mutex);
  return told_by == generation;
}

State Identifier::current_state() {
  const std::lock_guard lock(mutex);
  return state;
}

void Identifier::set_state(State next) {
  const std::lock_guard lock(mutex);
  state = next;
}

}  // namespace verbena::rdmacm
