// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace verbena::shm {

// A word that lets the other side run before each access (`turn`), and counts accesses.
struct DisturbedWord {
  uint32_t value;

  uint32_t load(std::memory_order) const {
    disturb();
    return value;
  }
  void store(uint32_t to, std::memory_order) {
    disturb();
    value = to;
  }
  uint32_t exchange(uint32_t to, std::memory_order) {
    disturb();
    return std::exchange(value, to);
  }

  static void disturb() {
    ++accesses;
    if (turn) turn();
  }
  inline static std::function<void()> turn;
  inline static uint32_t accesses = 0;
};

}  // namespace verbena::shm
