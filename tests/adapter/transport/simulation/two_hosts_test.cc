// SPDX-License-Identifier: Apache-2.0
// Two hosts, random requests of every kind, and a network that loses, reorders, duplicates, corrupts and
// delays packets.
//
// VERBENA_SEED=n runs that seed only.
#include <iostream>

#include <gtest/gtest.h>

#include "adapter/transport/simulation/seeds.h"
#include "adapter/transport/simulation/world.h"

#ifndef VERBENA_SIMULATED_PACKETS
#define VERBENA_SIMULATED_PACKETS 10'000'000
#endif

namespace verbena::transport {
namespace {

constexpr uint32_t kGroups = 20;
constexpr uint32_t kSeedsPerGroup = 20;
constexpr uint32_t kPacketsPerSeed = VERBENA_SIMULATED_PACKETS / (kGroups * kSeedsPerGroup);

class TwoHosts : public testing::TestWithParam<uint32_t> {};

TEST_P(TwoHosts, DeliverEverythingOnceInOrderAndIntact) {
  uint64_t packets = 0;
  const auto [first, end] = seeds_of_group(GetParam(), kSeedsPerGroup);
  for (uint64_t seed = first; seed < end; ++seed) {
    World world(WorldOptions::draw(seed, kPacketsPerSeed));
    ASSERT_TRUE(world.run()) << "VERBENA_SEED=" << seed << ": " << world.complaint();
    packets += world.packets();
  }
  RecordProperty("packets", std::to_string(packets));
}
INSTANTIATE_TEST_SUITE_P(Seeds, TwoHosts, testing::Range(0u, kGroups));

}  // namespace
}  // namespace verbena::transport
