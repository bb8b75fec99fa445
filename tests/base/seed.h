// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace verbena::test {

// Returns the seed of a random test, a different one in each run. It is printed at once, in case the test
// crashes. VERBENA_TEST_SEED=n repeats a run.
inline uint64_t seed() {
  const char* given = std::getenv("VERBENA_TEST_SEED");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const uint64_t value = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
  std::printf("VERBENA_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
  std::fflush(stdout);
  return value;
}

}  // namespace verbena::test
