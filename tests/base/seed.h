// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace verbena::test {

// The seed of a random test: another each time. It is printed at once, so that it is known even if the test
// crashes; VERBENA_TEST_SEED=n repeats that run.
inline uint64_t seed() {
  const char* given = std::getenv("VERBENA_TEST_SEED");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const uint64_t value = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
  std::printf("VERBENA_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
  std::fflush(stdout);
  return value;
}

}  // namespace verbena::test
