// SPDX-License-Identifier: Apache-2.0
// Two hosts, random requests of every kind, and links of every kind between them: slow and fast, near and
// far, with short and long queues, that lose packets singly and in bursts, reorder, duplicate and corrupt
// them. Everything arrives once, in order and intact, with any congestion control.
//
// VERBENA_SEED=n runs that seed only.
#include <gtest/gtest.h>

#include "adapter/transport/reorder_buffer.h"
#include "adapter/transport/simulation/seeds.h"
#include "adapter/transport/simulation/world.h"

namespace verbena::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint32_t kGroups = 8;
#ifdef VERBENA_SIMULATION_IS_SHORT
constexpr uint32_t kSeedsPerGroup = 4;
constexpr uint32_t kPacketsPerSeed = 2'000;
#else
constexpr uint32_t kSeedsPerGroup = 25;
constexpr uint32_t kPacketsPerSeed = 10'000;
#endif

net::LinkSettings draw_link(Random& random) {
  net::LinkSettings link;
  const auto chance = [&random] {
    static constexpr uint32_t kMax[] = {0, 0, 300, 3'000, 30'000};
    const uint32_t most = kMax[random.below(std::size(kMax))];
    return most == 0 ? 0 : static_cast<uint32_t>(random.below(most));
  };
  static constexpr uint64_t kRates[] = {12'500'000, 125'000'000, 1'250'000'000, 0};
  link.bytes_per_second = kRates[random.below(std::size(kRates))];
  link.queue_bytes = 20'000 + random.below(500'000);
  link.delay = microseconds(1 + random.below(random.one_in(3) ? 5'000 : 200));
  link.jitter = microseconds(random.one_in(2) ? 0 : random.below(500));
  link.detour = microseconds(random.below(2'000));
  link.loss = chance();
  link.duplication = chance();
  link.corruption = chance();
  link.early = chance();
  link.late = chance();
  if (random.one_in(6)) {
    link.bad_begins = 500;
    // Otherwise eight tries of a packet that is alone on the link, with their answers, could all be lost.
    link.bad_ends = 200'000;
    link.bad_loss = 400'000;
  }
  if (random.one_in(6)) {
    link.burst_every = milliseconds(50);
    link.burst_length = milliseconds(2);
    link.burst_loss = 500'000;
  }
  if (random.one_in(6) && link.bytes_per_second != 0) {
    link.other_bytes_per_second = link.bytes_per_second / 5;
    link.rate_turn = milliseconds(20);
  }
  return link;
}

WorldOptions draw(uint64_t seed) {
  WorldOptions options = WorldOptions::draw(seed, kPacketsPerSeed);
  Random random(seed ^ 0x11'22'33);
  options.link = draw_link(random);
  options.sizes.congestion = random.one_in(4) ? congestion::Kind::kFixed : congestion::Kind::kBbr;
  // A request is retried for longer than any of these links falls silent, and not before the packets queued
  // in front of it have passed.
  const auto slowest = std::min(options.link->bytes_per_second, options.link->other_bytes_per_second);
  const bool is_slow = slowest != 0 && slowest < 10'000'000;
  options.attributes.timeout = std::max<uint8_t>(options.attributes.timeout, is_slow ? 16 : 13);
  options.sizes.least_ack_timeout = milliseconds(16);
  options.sizes.send_requests = 1u << (3 + random.below(6));
  return options;
}

class Links : public testing::TestWithParam<uint32_t> {};

TEST_P(Links, DeliverEverythingOnceInOrderAndIntact) {
  uint64_t again = 0;
  uint64_t sent = 0;
  const auto [first, end] = seeds_of_group(GetParam(), kSeedsPerGroup);
  for (uint64_t seed = first; seed < end; ++seed) {
    World world(draw(seed));
    ASSERT_TRUE(world.run()) << "VERBENA_SEED=" << seed << ": " << world.complaint();
    for (size_t host : {0u, 1u}) {
      again += world.host(host).counter(kRetransmittedPackets);
      sent += world.host(host).counter(kSentPackets);
    }
  }
  EXPECT_EQ(budget_for_reorder_buffers().used(), 0u) << "something is kept that nobody will take";
  RecordProperty("again", std::to_string(again));
  RecordProperty("sent", std::to_string(sent));
}
INSTANTIATE_TEST_SUITE_P(Seeds, Links, testing::Range(0u, kGroups));

}  // namespace
}  // namespace verbena::transport
