// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/transport/multicast.h"
#include "base/random.h"

namespace verbena::transport {
namespace {

using Way = MulticastCopies::Way;

constexpr roce::Qpn kSender{0x4005};
constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr uint32_t kWindow = MulticastCopies::kWindow;

class Copies : public ::testing::Test {
 protected:
  bool by_memory(uint32_t psn, roce::Qpn sender = kSender, TimePoint now = kNow) {
    return copies.is_first(Way::kMemory, sender, roce::Psn(psn), now);
  }
  bool by_wire(uint32_t psn, roce::Qpn sender = kSender, TimePoint now = kNow) {
    return copies.is_first(Way::kWire, sender, roce::Psn(psn), now);
  }
  MulticastCopies copies;
};

TEST_F(Copies, TheFirstIsTakenWhicheverItIs) {
  EXPECT_TRUE(by_memory(1));
  EXPECT_FALSE(by_wire(1));
  EXPECT_TRUE(by_wire(2));
  EXPECT_FALSE(by_memory(2));
}

TEST_F(Copies, TheOnlyOneIsTaken) {
  for (uint32_t psn = 0; psn < 10; ++psn) EXPECT_TRUE(psn % 2 == 0 ? by_memory(psn) : by_wire(psn));
}

TEST_F(Copies, OneWayMayBeFarAheadOfTheOther) {
  for (uint32_t psn = 0; psn < kWindow; ++psn) ASSERT_TRUE(by_memory(psn));
  for (uint32_t psn = 0; psn < kWindow; ++psn) ASSERT_FALSE(by_wire(psn));
}

TEST_F(Copies, NumbersMayWrap) {
  for (uint32_t psn = 0xfffff0; psn < 0x1000010; ++psn) ASSERT_TRUE(by_memory(psn));
  for (uint32_t psn = 0xfffff0; psn < 0x1000010; ++psn) ASSERT_FALSE(by_wire(psn));
}

// A QP that was reset begins with the PSN that its program sets.
TEST_F(Copies, ASenderMayBeginAgain) {
  for (const uint32_t first : {0u, 0u, 5u, 3 * kWindow, 0u, 0x800000u, 0u}) {
    for (uint32_t psn = first; psn < first + 1000; ++psn) {
      ASSERT_TRUE(by_memory(psn)) << first;
      ASSERT_FALSE(by_wire(psn)) << first;
    }
  }
}

TEST_F(Copies, EachSenderHasItsOwnNumbers) {
  constexpr roce::Qpn kOther{0x4006};
  EXPECT_TRUE(by_memory(1));
  EXPECT_TRUE(by_wire(1, kOther));
  EXPECT_FALSE(by_memory(1, kOther));
  EXPECT_FALSE(by_wire(1));
  EXPECT_TRUE(copies.knows(kOther));
  EXPECT_FALSE(copies.knows(roce::Qpn(7)));
}

TEST_F(Copies, OfOneSenderTooManyThoseByTheWireAreTaken) {
  for (uint32_t i = 0; i < MulticastCopies::kMaxSenders; ++i) EXPECT_TRUE(by_memory(1, roce::Qpn(i + 2)));
  EXPECT_FALSE(by_memory(1, roce::Qpn(500)));
  EXPECT_TRUE(by_wire(1, roce::Qpn(500)));
  EXPECT_FALSE(by_wire(1, roce::Qpn(2))) << "the others are remembered";
}

TEST_F(Copies, WhoIsNotHeardAnyMoreMakesRoom) {
  for (uint32_t i = 0; i < MulticastCopies::kMaxSenders; ++i) by_memory(1, roce::Qpn(i + 2));
  constexpr TimePoint kLater = kNow + MulticastCopies::kForgottenAfter;
  EXPECT_TRUE(by_memory(1, roce::Qpn(500), kLater));
  EXPECT_FALSE(by_wire(1, roce::Qpn(500), kLater));
  EXPECT_FALSE(copies.knows(roce::Qpn(2)));
}

// Two routes, each of which loses and delays packets at random but keeps their order. VERBENA_SEED=n runs
// that seed only.
TEST_F(Copies, ExactlyOneIsTakenOfAllThatComes) {
  const char* const chosen = std::getenv("VERBENA_SEED");  // NOLINT(concurrency-mt-unsafe)
  const uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const uint64_t last = chosen != nullptr ? first : 200;
  for (uint64_t seed = first; seed <= last && !HasFailure(); ++seed) {
    SCOPED_TRACE("VERBENA_SEED=" + std::to_string(seed));
    Random random(seed);
    MulticastCopies both;
    const auto start = static_cast<uint32_t>(random.below(1 << 24));
    std::vector<uint32_t> ways[2];
    for (uint32_t i = 0; i < 3000; ++i) {
      for (auto& way : ways) {
        if (random.below(8) != 0) way.push_back(start + i);
      }
    }
    std::map<uint32_t, int> taken;
    size_t next[2] = {0, 0};
    while (next[0] < ways[0].size() || next[1] < ways[1].size()) {
      size_t way = random.below(2);
      if (next[way] == ways[way].size()) way = 1 - way;
      for (uint64_t run = random.below(200); run > 0 && next[way] < ways[way].size(); --run) {
        const uint32_t psn = ways[way][next[way]++];
        taken[psn] += both.is_first(static_cast<Way>(way), kSender, roce::Psn(psn), kNow) ? 1 : 0;
      }
    }
    EXPECT_TRUE(std::ranges::all_of(taken, [](const auto& each) { return each.second == 1; }));
  }
}

TEST_F(Copies, OneWhoseNumbersJumpIsHeardInNoTime) {
  const TimePoint began = MonotonicClock::now();
  by_memory(0);
  for (uint32_t i = 1; i < 100'000; ++i) by_wire(i * (kWindow - 1));
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr auto kNoTime = std::chrono::seconds(40);
#else
  constexpr auto kNoTime = std::chrono::seconds(2);
#endif
  EXPECT_LT(MonotonicClock::now() - began, kNoTime);
}

TEST_F(Copies, AJumpForgetsAllThatItLeavesBehind) {
  for (const uint32_t jump : {1u, 60u, 64u, 65u, 1000u, kWindow - 1, kWindow}) {
    MulticastCopies jumping;
    std::swap(copies, jumping);
    for (uint32_t psn = 0; psn < 2 * kWindow - 5; ++psn) by_memory(psn);
    const uint32_t newest = 2 * kWindow - 6;
    EXPECT_TRUE(by_memory(newest + jump));
    // PSNs that share a place of the window with older ones, which must be forgotten.
    for (uint32_t psn = newest + 1; psn < newest + jump; ++psn) ASSERT_TRUE(by_wire(psn)) << jump;
    if (jump < kWindow) {
      for (uint32_t psn = newest + jump - kWindow + 1; psn <= newest; ++psn)
        ASSERT_FALSE(by_wire(psn)) << jump;
    }
  }
}

}  // namespace
}  // namespace verbena::transport
