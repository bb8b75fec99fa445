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

// The faults of the network, in per mille of datagrams.
struct Weather {
  unsigned loss = 0;  // includes corruption, which the ICRC detects
  unsigned duplication = 0;
  unsigned lateness = 0;  // arrives seconds late, after later datagrams
  Duration longest_delay = std::chrono::milliseconds(20);
};

// The simulation: virtual time, a network, and an agenda of events. Single-threaded and determined by its
// seed.
class World {
 public:
  World(uint64_t seed, const Weather& weather) : random_(seed), weather_(weather) {}

  TimePoint now() const { return now_; }
  Random& random() { return random_; }
  void set_weather(const Weather& weather) { weather_ = weather; }

  // Sets the endpoint that receives at an address; nullptr: none.
  void settle(uint8_t host, Endpoint* endpoint) { hosts_[host] = endpoint; }
  void at(TimePoint when, std::function<void()> what) { agenda_.emplace(when, std::move(what)); }
  void after(Duration time, std::function<void()> what) { at(now_ + time, std::move(what)); }

  // Runs events in order until none is left, `until` is reached, or `most` have run. Returns the number of
  // events run.
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
