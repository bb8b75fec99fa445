// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace verbena::transport {

// Returns the seeds [first, end) of one group of a test. Each group has `per_group` seeds, multiplied by
// VERBENA_SEED_ROUNDS if set. With VERBENA_SEED set, group 0 has only that seed, and other groups have none.
inline std::pair<uint64_t, uint64_t> seeds_of_group(uint32_t group, uint32_t per_group) {
  if (const char* asked = std::getenv("VERBENA_SEED")) {
    const uint64_t seed = std::strtoull(asked, nullptr, 0);
    return {seed, group == 0 ? seed + 1 : seed};
  }
  const char* rounds = std::getenv("VERBENA_SEED_ROUNDS");
  const uint64_t seeds = per_group * (rounds != nullptr ? std::strtoull(rounds, nullptr, 0) : 1);
  const uint64_t first = group * seeds + 1;
  return {first, first + seeds};
}

// The same for a test without groups.
inline std::vector<uint64_t> seeds_up_to(uint64_t last) {
  if (const char* asked = std::getenv("VERBENA_SEED")) return {std::strtoull(asked, nullptr, 0)};
  std::vector<uint64_t> all(last);
  for (uint64_t i = 0; i < last; ++i) all[i] = i + 1;
  return all;
}

}  // namespace verbena::transport
