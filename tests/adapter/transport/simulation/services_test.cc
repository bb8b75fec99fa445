// SPDX-License-Identifier: Apache-2.0
// UC, XRC and shared receive queues on a network that loses, reorders, duplicates, corrupts and delays
// packets.
//
// VERBENA_SEED=n runs that seed only.
#include <cstdlib>

#include <gtest/gtest.h>

#include "adapter/transport/simulation/exchange.h"
#include "adapter/transport/simulation/seeds.h"

namespace verbena::transport {
namespace {

#ifdef VERBENA_SIMULATION_IS_SHORT
constexpr uint64_t kSeeds = 40;
#else
constexpr uint64_t kSeeds = 250;
#endif

struct Case {
  const char* name;
  Exchanging what;
};

class Services : public testing::TestWithParam<Case> {
 protected:
  static bool reliable() {
    return GetParam().what == Exchanging::kRcShared || GetParam().what == Exchanging::kXrc;
  }
};

TEST_P(Services, DeliverWhatTheyDeliverIntactAndInOrder) {
  uint64_t arrived = 0;
  uint64_t expected = 0;
  uint64_t limit_events = 0;
  uint64_t not_ready = 0;
  for (const uint64_t seed : seeds_up_to(kSeeds)) {
    Exchange exchange(ExchangeOptions::draw(seed, GetParam().what));
    ASSERT_TRUE(exchange.run()) << "VERBENA_SEED=" << seed << ": " << exchange.complaint();
    arrived += exchange.arrived();
    expected += exchange.expected();
    limit_events += exchange.limit_events();
    not_ready += exchange.not_ready();
  }
  RecordProperty("arrived", std::to_string(arrived));
  EXPECT_GE(arrived * 10, expected * 3) << "of " << expected << " only " << arrived;
  if (std::getenv("VERBENA_SEED") != nullptr || GetParam().what == Exchanging::kUc) return;
  EXPECT_GT(limit_events, kSeeds);
  if (reliable()) {
    EXPECT_GT(not_ready, kSeeds) << "queues were to run dry now and then";
  }
}

TEST_P(Services, LoseNothingWhenTheNetworkDoesNot) {
  for (const uint64_t seed : seeds_up_to(kSeeds)) {
    ExchangeOptions options = ExchangeOptions::draw(seed, GetParam().what);
    const Duration delay = options.conditions.delay;
    options.conditions = {};
    options.conditions.delay = delay;
    // No receive is ever missing either.
    options.receives = 32 * options.senders;
    options.limit = options.lateness = 0;
    options.messages = 25;
    Exchange exchange(options);
    ASSERT_TRUE(exchange.run()) << "VERBENA_SEED=" << seed << ": " << exchange.complaint();
    ASSERT_EQ(exchange.arrived(), exchange.expected()) << "VERBENA_SEED=" << seed;
  }
}

class ReliableServices : public Services {};

TEST_P(ReliableServices, SendAgainLittleMoreThanWasLost) {
  uint64_t lost = 0;
  uint64_t sent_again = 0;
  for (const uint64_t seed : seeds_up_to(20)) {
    ExchangeOptions options;
    options.seed = seed;
    options.what = GetParam().what;
    options.conditions.loss = 10'000;
    options.conditions.delay = std::chrono::milliseconds(1);
    options.timeout = 14;
    options.queues = 2;
    options.messages = options.receives = 30;  // no receive is ever missing
    options.max_message = 200'000;
    Exchange exchange(options);
    ASSERT_TRUE(exchange.run()) << "VERBENA_SEED=" << seed << ": " << exchange.complaint();
    lost += exchange.network().counters().lost;
    sent_again += exchange.sent_again();
  }
  RecordProperty("lost", std::to_string(lost));
  RecordProperty("sent_again", std::to_string(sent_again));
  EXPECT_LT(sent_again, 2 * lost);
}

INSTANTIATE_TEST_SUITE_P(Of, ReliableServices,
                         testing::Values(Case{"RcShared", Exchanging::kRcShared},
                                         Case{"Xrc", Exchanging::kXrc}),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Of, Services,
                         testing::Values(Case{"Uc", Exchanging::kUc}, Case{"UcShared", Exchanging::kUcShared},
                                         Case{"RcShared", Exchanging::kRcShared},
                                         Case{"Xrc", Exchanging::kXrc}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace verbena::transport
