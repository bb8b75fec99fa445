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

// Visits every state that two programs can reach, depth first: in every order in which their accesses to the
// words that they share can happen and their stores become visible, and with a crash of either between any
// two of them.
//
// A World is all there is, as plain bytes. It has `threads`, `started` and `crashed`, for each program one.
template <class World>
class Explorer {
 public:
  Explorer() {
    static_assert(std::is_trivially_copyable_v<World>);
    std::memset(static_cast<void*>(&world_), 0, sizeof world_);
  }
  virtual ~Explorer() = default;

  // What went wrong, or nothing.
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
  // The next step of one of the programs. False: it waits for the other, or has ended.
  virtual bool step(uint32_t who) = 0;
  // Nothing can move any more.
  virtual void check_end() = 0;

  // Runs a step of an operation on the End of a program that lies in the world. True: it has ended, and what
  // it did is kept.
  template <class End, class Operation>
  bool operate(uint32_t who, std::byte* place, Operation operation) {
    End* end = std::launder(reinterpret_cast<End*>(place));
    std::byte before[sizeof(End)];
    std::memcpy(before, place, sizeof before);
    const bool ended = advance(who, [&] { operation(*end); });
    if (!ended) std::memcpy(place, before, sizeof before);
    return ended;
  }
  // The same for an operation that changes nothing but by its accesses, until it ends.
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

  // Moves: a step of either program, the oldest store of either becomes visible, either crashes. What a
  // crashed process has stored becomes visible all the same.
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
    if (world_.crashed[0] || world_.crashed[1]) return false;  // one crash is enough
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

  // Of the whole world, padding and all: that is zero from the beginning.
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

  std::unordered_map<uint64_t, bool> seen_;  // true: on the path to where we are
  std::vector<Place> path_;
  size_t ends_ = 0;
  size_t longest_ = 0;
};

}  // namespace verbena::shm
