// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/shm/stepped_word.h"

namespace verbena::shm {

// A model checker: visits, depth first, every state that two programs can reach. It covers every order of
// their accesses to shared words, every time at which their stores can become visible, and a crash of either
// between any two steps.
//
// World is the complete state, as plain bytes. It has arrays `threads`, `started` and `crashed`, indexed by
// program.
template <class World>
class Explorer {
 public:
  Explorer() {
    static_assert(std::is_trivially_copyable_v<World>);
    std::memset(static_cast<void*>(&world_), 0, sizeof world_);
  }
  virtual ~Explorer() = default;

  // Explores all states. Returns the first error, or an empty text.
  std::string explore() {
    enter();
    while (!path_.empty() && wrong_.empty()) {
      Place& place = path_.back();
      std::memcpy(static_cast<void*>(&world_), place.world.data(), sizeof world_);
      if (place.tried == kMoves) {
        if (!place.moved) {
          ++ends_;
          check_end();
        }
        seen_[place.key] = false;
        path_.pop_back();
      } else {
        const uint32_t move = place.tried++;
        if (!make(move)) continue;
        place.moved |= !is_crash(move);
        enter();
      }
    }
    return wrong_;
  }

  void expect_right() {
    EXPECT_EQ(explore(), "");
    EXPECT_GT(ends_, 0u);
    std::printf("%zu states, %zu ends, at most %zu steps\n", seen_.size(), ends_, longest_);
  }

 protected:
  // Makes the next step of program `who`. False: it waits for the other, or has ended.
  virtual bool step(uint32_t who) = 0;
  // Checks a state in which no program can move.
  virtual void check_end() = 0;

  // Runs a step of an operation on a program's End, which is stored in the world at `place`. True: the
  // operation has ended, and its changes to the End are kept.
  template <class End, class Operation>
  bool operate(uint32_t who, std::byte* place, Operation operation) {
    End* end = std::launder(reinterpret_cast<End*>(place));
    std::byte before[sizeof(End)];
    std::memcpy(before, place, sizeof before);
    const bool ended = advance(who, [&] { operation(*end); });
    if (!ended) std::memcpy(place, before, sizeof before);
    return ended;
  }
  // The same for an operation that changes nothing but shared words until it ends.
  template <class Operation>
  bool advance(uint32_t who, Operation operation) {
    Stepping::set_started(world_.started[who]);
    const bool ended = Stepping::step(world_.threads[who], operation);
    world_.started[who] = !ended;
    return ended;
  }

  World world_;
  std::string wrong_;

 private:
  struct Place {
    uint64_t key;
    uint32_t tried = 0;
    bool moved = false;
    std::vector<std::byte> world;
  };

  // Moves 0 and 1: a step of either program. 2 and 3: the oldest store of either becomes visible, even after
  // its crash. 4 and 5: either crashes.
  static constexpr uint32_t kMoves = 6;
  static constexpr bool is_crash(uint32_t move) { return move >= 4; }
  static constexpr size_t kMaxSteps = 2000;
  bool make(uint32_t move) {
    const uint32_t who = move % 2;
    if (move < 2) return !world_.crashed[who] && step(who);
    SteppedThread& thread = world_.threads[who];
    if (move < 4) {
      if (thread.stores == 0) return false;
      thread.commit_oldest();
      return true;
    }
    if (world_.crashed[0] || world_.crashed[1]) return false;  // at most one crash
    world_.crashed[who] = true;
    return true;
  }

  void enter() {
    const auto* bytes = reinterpret_cast<const std::byte*>(&world_);
    const uint64_t key = hash(bytes);
    const auto [at, is_new] = seen_.try_emplace(key, true);
    if (!is_new) {
      if (at->second) wrong_ = "they go in a circle";
      return;
    }
    if (path_.size() == kMaxSteps) {
      wrong_ = "they do not come to an end";
      return;
    }
    path_.push_back({.key = key, .world = {bytes, bytes + sizeof world_}});
    longest_ = std::max(longest_, path_.size());
  }

  // Hashes the whole world with its padding, which the constructor has zeroed.
  static uint64_t hash(const std::byte* bytes) {
    uint64_t a = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i + 8 <= sizeof(World); i += 8) {
      uint64_t word;
      std::memcpy(&word, bytes + i, 8);
      a = (a ^ word) * 0xff51afd7ed558ccd;
      a ^= a >> 32;
    }
    return a;
  }

  std::unordered_map<uint64_t, bool> seen_;  // true: on the current path
  std::vector<Place> path_;
  size_t ends_ = 0;
  size_t longest_ = 0;
};

}  // namespace verbena::shm
