// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include <verbena/async/loop.hpp>
#include <verbena/async/timer.hpp>
#include <verbena/cm/receive_shares.hpp>

namespace verbena::testing {

class SimulatedListener;

// Counts of a simulation of connections. The first four are errors if they are not 0.
struct SimulatedCounts {
  std::uint64_t missing_receives = 0;  // messages that no receive was posted for
  std::uint64_t wrong_credits = 0;
  std::uint64_t wrong_reads = 0;  // READs of memory that its owner had freed
  std::uint64_t overfull_queues = 0;
  // Alive now.
  std::size_t ends = 0;
  std::size_t blocks = 0;
  std::size_t regions = 0;
  std::size_t max_bytes_of_an_end = 0;  // of its blocks, at any time
  std::uint64_t messages = 0;
  std::uint64_t refused = 0;  // connections
  std::uint64_t hash = 0;     // of the times of all messages: two equal runs have the same
};

// Simulated time, a network's events, and the server's shared receive queue. There is one for each loop:
// loop::service(). The loop's time has to be SimulatedWorld::now.
class SimulatedWorld {
 public:
  explicit SimulatedWorld(loop& io) : io_(io) {}

  // All loops have the same time. Begin each simulation with this.
  static void reset_time() { time_ = time_point(std::chrono::hours(1)); }
  static time_point now() { return time_; }
  // Takes turns until `is_done`, and moves the time to the next timer whenever nothing is ready. Returns
  // false if nothing would ever happen any more.
  template <class Done>
  bool run_until(Done is_done) {
    while (!is_done()) {
      if (io_.turn()) continue;
      const auto next = io_.timers().next();
      if (!next) return false;
      time_ = std::max(time_, *next);
    }
    return true;
  }

  void begin(std::uint64_t seed, std::uint32_t max_sharers, std::uint32_t spare) {
    random_.seed(seed);
    shares.emplace(max_sharers, spare);
  }
  // A number less than `end`.
  std::uint64_t random(std::uint64_t end) { return random_() % end; }
  bool chance(std::uint64_t one_of) { return random(one_of) == 0; }
  duration random_time(duration max) {
    return duration(static_cast<duration::rep>(random(static_cast<std::uint64_t>(max.count()) + 1)));
  }
  void at(time_point when, std::function<void()> what) {
    events_.emplace_back();
    const auto place = std::prev(events_.end());
    place->start(io_.timers(), when, [this, place, what = std::move(what)] {
      events_.erase(place);
      what();
    });
  }
  void after(duration time, std::function<void()> what) { at(now() + time, std::move(what)); }

  // ---- the shared receive queue

  void fill() {
    for (; receives < shares->taken(); ++receives) ++posted;
    if (receives > shares->capacity()) ++counts.overfull_queues;
  }
  void take_receive() {
    if (posted == 0) {
      ++counts.missing_receives;
    } else {
      --posted;
    }
  }

  loop& io() { return io_; }
  std::optional<detail::receive_shares> shares;
  std::uint32_t receives = 0;  // buffers of the queue
  std::uint32_t posted = 0;    // of them
  SimulatedListener* listening = nullptr;
  std::map<std::uint64_t, const std::byte*> memory;  // that peers may read, by its key
  std::uint64_t next_key = 1;
  SimulatedCounts counts;

 private:
  static inline time_point time_{};

  loop& io_;
  std::mt19937_64 random_;
  std::list<detail::timer> events_;
};

}  // namespace verbena::testing
