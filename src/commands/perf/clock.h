// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace verbena::perf {

// Returns the time in ticks of the processor's constant clock, from an arbitrary beginning. Reading this
// clock takes a third of the time of clock_gettime(2). This matters where a message takes half a microsecond.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Measures how many ticks (see ticks()) a microsecond has, by comparison with std::chrono::steady_clock. The
// measurement begins at construction and ends when ticks_per_microsecond() is called. A longer measurement is
// more precise.
class Clock {
 public:
  // Returns the number of ticks per microsecond. Waits, without sleeping, until at least ten milliseconds
  // have passed since construction.
  double ticks_per_microsecond() const {
    constexpr std::chrono::milliseconds kLeast(10);
    auto now = std::chrono::steady_clock::now();
    while (now - began_ < kLeast) now = std::chrono::steady_clock::now();
    const auto passed = static_cast<double>(ticks() - first_);
    return passed / std::chrono::duration<double, std::micro>(now - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::uint64_t first_ = ticks();
};

}  // namespace verbena::perf
