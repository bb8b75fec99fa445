// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {

// What a network does to datagrams, in per mille.
struct Weather {
  unsigned loss = 0;  // corruption is loss: the ICRC finds it
  unsigned duplication = 0;
  unsigned lateness = 0;  // comes seconds late, after all that was sent behind it
  Duration longest_delay = std::chrono::milliseconds(20);
};

// Time, a network, and what is to happen: one thread, one seed.
class World {
 public:
  World(uint64_t seed, const Weather& weather) : random_(seed), weather_(weather) {}

  TimePoint now() const { return now_; }
  Random& random() { return random_; }
  void set_weather(const Weather& weather) { weather_ = weather; }

  // What answers to an address from now on; nullptr: nobody.
  void settle(uint8_t host, Endpoint* endpoint) { hosts_[host] = endpoint; }
  void at(TimePoint when, std::function<void()> what) { agenda_.emplace(when, std::move(what)); }
  void after(Duration time, std::function<void()> what) { at(now_ + time, std::move(what)); }

  // One thing after the other until nothing is left to happen, or the time has come. Returns how many things
  // happened; stops early after `most`.
  size_t run(TimePoint until, size_t most = ~size_t{0});

 private:
  bool step(TimePoint until);
  void collect();
  void carry(const Datagram& datagram);

  Random random_;
  Weather weather_;
  TimePoint now_{std::chrono::hours(1)};
  std::array<Endpoint*, 256> hosts_{};
  std::multimap<TimePoint, std::function<void()>> agenda_;
};

}  // namespace verbena::cm
