// SPDX-License-Identifier: Apache-2.0
#include "management/cm/simulation/world.h"

namespace verbena::cm {

void World::carry(const Datagram& datagram) {
  const auto happens = [&](unsigned per_mille) { return random_.below(1000) < per_mille; };
  const uint64_t copies = happens(weather_.duplication) ? 2 : 1;
  for (uint64_t copy = 0; copy < copies; ++copy) {
    if (happens(weather_.loss)) continue;
    Duration delay(
        static_cast<int64_t>(random_.below(static_cast<uint64_t>(weather_.longest_delay.count()))));
    if (happens(weather_.lateness)) delay += std::chrono::milliseconds(random_.below(20000));
    after(delay, [this, datagram] {
      for (Endpoint* host : hosts_) {
        if (host == nullptr || address(host->host) != datagram.path.destination) continue;
        host->receive(datagram, now_);
      }
    });
  }
}

// Collects the messages that the last step has sent.
void World::collect() {
  for (Endpoint* host : hosts_) {
    if (host == nullptr) continue;
    for (; !host->sent.empty(); host->sent.pop_front()) carry(host->sent.front());
  }
}

bool World::step(TimePoint until) {
  TimePoint next = agenda_.empty() ? kNever : agenda_.begin()->first;
  Endpoint* timer = nullptr;
  for (Endpoint* host : hosts_) {
    if (host == nullptr || host->manager.deadline() >= next) continue;
    next = host->manager.deadline();
    timer = host;
  }
  if (next == kNever || next > until) return false;
  now_ = std::max(now_, next);
  if (timer != nullptr) {
    timer->manager.on_timer(now_);
  } else {
    const auto what = std::move(agenda_.begin()->second);
    agenda_.erase(agenda_.begin());
    what();
  }
  collect();
  return true;
}

size_t World::run(TimePoint until, size_t most) {
  collect();
  size_t steps = 0;
  while (steps < most && step(until)) ++steps;
  return steps;
}

}  // namespace verbena::cm
