// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/sim/link_model.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/seed.h"

namespace verbena::net {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{seconds(5)};
constexpr uint64_t kGigabit = 125'000'000;
constexpr size_t kFrame = 1226;  // takes 10 us at 1 Gb/s, with the overhead of 24 bytes
constexpr Duration kFrameTime = microseconds(10);

TimePoint at(Duration since_start) {
  return kStart + since_start;
}

// Sends one packet each `gap`. Returns what happened to each.
std::vector<Passage> send(LinkModel& link, int packets, Duration gap = Duration{0}, size_t bytes = kFrame) {
  std::vector<Passage> passages;
  for (int k = 0; k < packets; ++k) passages.push_back(link.pass(at(k * gap), bytes));
  return passages;
}

std::vector<LinkFate> fates(const std::vector<Passage>& passages) {
  std::vector<LinkFate> found;
  for (const Passage& passage : passages) found.push_back(passage.fate);
  return found;
}

auto count(const std::vector<Passage>& passages, LinkFate fate) {
  return std::ranges::count(passages, fate, &Passage::fate);
}

bool in_order(const std::vector<Passage>& passages) {
  TimePoint last{};
  for (const Passage& passage : passages) {
    if (passage.arrived() && passage.arrives[0] < last) return false;
    if (passage.arrived()) last = passage.arrives[0];
  }
  return true;
}

TEST(LinkModel, WithoutSettingsPacketsArriveAtOnce) {
  LinkModel link({}, 1, kStart);
  for (const Passage& passage : send(link, 1000)) {
    EXPECT_TRUE(passage.arrived());
    EXPECT_EQ(passage.arrives[0], kStart);
    EXPECT_EQ(passage.copies, 1);
    EXPECT_FALSE(passage.marked || passage.corrupted);
  }
  EXPECT_EQ(link.counters().packets, 1000u);
  EXPECT_EQ(link.counters().bytes, 1000 * kFrame);
  EXPECT_EQ(link.counters().longest_queue_bytes, 0u);
}

TEST(LinkModel, TakesTheTimeOfTheRateAndTheDelay) {
  LinkModel link({.bytes_per_second = kGigabit, .delay = milliseconds(25)}, 1, kStart);
  const auto passages = send(link, 3);
  EXPECT_EQ(passages[0].arrives[0], at(milliseconds(25) + kFrameTime));
  EXPECT_EQ(passages[2].arrives[0], at(milliseconds(25) + 3 * kFrameTime));
  // An idle transmitter saves up no credit.
  EXPECT_EQ(link.pass(at(seconds(1)), kFrame).arrives[0], at(seconds(1) + milliseconds(25) + kFrameTime));
}

TEST(LinkModel, LosesWhatFindsNoRoomInTheQueue) {
  LinkModel link({.bytes_per_second = kGigabit, .queue_bytes = 10 * kFrame}, 1, kStart);
  const auto passages = send(link, 13);
  EXPECT_TRUE(passages[9].arrived());
  EXPECT_EQ(passages[10].fate, LinkFate::kOverflowed);
  EXPECT_EQ(link.counters().overflowed, 3u);
  EXPECT_EQ(link.counters().longest_queue_bytes, 10 * kFrame);
  // The first packet has left, so there is room for one more.
  EXPECT_EQ(link.queue_bytes(at(kFrameTime)), 9 * kFrame);
  EXPECT_TRUE(link.pass(at(kFrameTime), kFrame).arrived());
  EXPECT_EQ(link.pass(at(kFrameTime), kFrame).fate, LinkFate::kOverflowed);
  EXPECT_EQ(link.queue_bytes(at(seconds(1))), 0u);
}

TEST(LinkModel, AnEmptyQueueTakesAnyPacket) {
  LinkModel link({.bytes_per_second = kGigabit, .queue_bytes = 100}, 1, kStart);
  EXPECT_TRUE(link.pass(kStart, kFrame).arrived());
  EXPECT_EQ(link.pass(kStart, kFrame).fate, LinkFate::kOverflowed);
}

TEST(LinkModel, AGrowingQueueKeepsItsOrder) {
  LinkModel link({.bytes_per_second = kGigabit, .queue_bytes = 1 << 30}, 1, kStart);
  send(link, 40);
  EXPECT_EQ(link.queue_bytes(at(30 * kFrameTime)), 10 * kFrame);
  for (int k = 0; k < 1000; ++k) link.pass(at(30 * kFrameTime), kFrame);
  EXPECT_EQ(link.queue_bytes(at(30 * kFrameTime)), 1010 * kFrame);
  EXPECT_EQ(link.queue_bytes(at(1039 * kFrameTime)), kFrame);
}

TEST(LinkModel, MarksWhatFindsALongQueue) {
  LinkModel link({.bytes_per_second = kGigabit, .mark_above_bytes = 5 * kFrame}, 1, kStart);
  const auto passages = send(link, 10);
  EXPECT_FALSE(passages[5].marked);
  EXPECT_TRUE(passages[6].marked);
  EXPECT_EQ(link.counters().marked, 4u);
}

TEST(LinkModel, DoesNotCarryWhatIsLargerThanItsMtu) {
  LinkModel link({.mtu = 1400}, 1, kStart);
  EXPECT_TRUE(link.pass(kStart, 1414).arrived());
  EXPECT_EQ(link.pass(kStart, 1415).fate, LinkFate::kTooLarge);
  EXPECT_EQ(link.counters().too_large, 1u);
}

TEST(LinkModel, ChangesItsRateByTurns) {
  LinkModel link({.bytes_per_second = kGigabit,
                  .other_bytes_per_second = kGigabit / 10,
                  .rate_turn = seconds(1),
                  .queue_bytes = 1 << 30},
                 1, kStart);
  EXPECT_EQ(link.pass(at(milliseconds(500)), kFrame).arrives[0], at(milliseconds(500) + kFrameTime));
  EXPECT_EQ(link.pass(at(milliseconds(1500)), kFrame).arrives[0], at(milliseconds(1500) + 10 * kFrameTime));
  // One half is sent in the fast period, the other in the slow one.
  const Duration before = kFrameTime / 2;
  EXPECT_EQ(link.pass(at(seconds(3) - before), kFrame).arrives[0], at(seconds(3) + 10 * before));
}

TEST(LinkModel, StandsStillInATurnWithoutARate) {
  LinkModel link({.bytes_per_second = kGigabit, .rate_turn = seconds(1)}, 1, kStart);
  EXPECT_EQ(link.pass(at(milliseconds(1200)), kFrame).arrives[0], at(seconds(2) + kFrameTime));
  EXPECT_EQ(link.pass(at(milliseconds(1200)), kFrame).arrives[0], at(seconds(2) + 2 * kFrameTime));
}

TEST(LinkModel, CarriesWhatItsTurnsAllowOnAverage) {
  LinkModel link({.bytes_per_second = kGigabit,
                  .other_bytes_per_second = kGigabit / 4,
                  .rate_turn = microseconds(137),
                  .queue_bytes = 1 << 30},
                 1, kStart);
  constexpr int kPackets = 20'000;
  const Duration taken = send(link, kPackets).back().arrives[0] - kStart;
  const double average = 0.625 * kGigabit;
  EXPECT_NEAR(static_cast<double>(kPackets) * (kFrame + 24) / average,
              static_cast<double>(taken.count()) * 1e-9, 1e-3);
}

TEST(LinkModel, LosesItsShare) {
  LinkModel link({.loss = 10'000}, test::seed(), kStart);
  const auto passages = send(link, 100'000);
  EXPECT_NEAR(static_cast<double>(count(passages, LinkFate::kLost)), 1000, 200);
  EXPECT_EQ(link.counters().lost, static_cast<uint64_t>(count(passages, LinkFate::kLost)));
}

TEST(LinkModel, WhatIsLostTakesItsTimeOfTheTransmitter) {
  LinkModel link({.bytes_per_second = kGigabit, .loss = 1'000'000}, 1, kStart);
  send(link, 3);
  EXPECT_EQ(link.queue_bytes(kStart), 3 * kFrame);
}

TEST(LinkModel, TheSameSeedGivesTheSamePassages) {
  const LinkSettings settings{.bytes_per_second = kGigabit,
                              .queue_bytes = 60'000,
                              .jitter = microseconds(70),
                              .early = 10'000,
                              .late = 10'000,
                              .loss = 50'000,
                              .duplication = 50'000,
                              .corruption = 10'000};
  const uint64_t seed = test::seed();
  LinkModel link(settings, seed, kStart), same(settings, seed, kStart), other(settings, seed + 1, kStart);
  const auto passages = send(link, 10'000, microseconds(9));
  const auto again = send(same, 10'000, microseconds(9));
  for (size_t k = 0; k < passages.size(); ++k) {
    ASSERT_EQ(passages[k].fate, again[k].fate) << k;
    ASSERT_EQ(passages[k].arrives, again[k].arrives) << k;
    ASSERT_EQ(passages[k].damage, again[k].damage) << k;
  }
  EXPECT_NE(fates(passages), fates(send(other, 10'000, microseconds(9))));
}

// So a run over a real clock loses the same packets as the previous one.
TEST(LinkModel, WhichPacketsChanceTakesDoesNotDependOnTheTime) {
  const LinkSettings settings{.bytes_per_second = kGigabit,
                              .jitter = microseconds(70),
                              .early = 20'000,
                              .late = 20'000,
                              .loss = 50'000,
                              .duplication = 50'000,
                              .corruption = 10'000,
                              .bad_begins = 1'000,
                              .bad_ends = 100'000};
  const uint64_t seed = test::seed();
  LinkModel link(settings, seed, kStart), slower(settings, seed, kStart);
  const auto passages = send(link, 10'000, microseconds(11), 60);
  const auto later = send(slower, 10'000, microseconds(977), 1514);
  EXPECT_EQ(fates(passages), fates(later));
  for (size_t k = 0; k < passages.size(); ++k) {
    ASSERT_EQ(passages[k].copies, later[k].copies) << k;
    ASSERT_EQ(passages[k].corrupted, later[k].corrupted) << k;
  }
}

TEST(LinkModel, LosesInRunsInItsBadState) {
  // The bad state takes a tenth of the time, 50 packets each time.
  LinkModel link({.bad_begins = 2'222, .bad_ends = 20'000}, test::seed(), kStart);
  const auto passages = send(link, 500'000);
  const auto lost = count(passages, LinkFate::kLost);
  int runs = 0;
  for (size_t k = 1; k < passages.size(); ++k) {
    if (passages[k - 1].arrived() && !passages[k].arrived()) ++runs;
  }
  EXPECT_NEAR(static_cast<double>(lost) / 500'000, 0.1, 0.02);
  EXPECT_NEAR(static_cast<double>(lost) / runs, 50, 10);
}

TEST(LinkModel, LosesOnlyInItsBurstsByTime) {
  LinkModel link({.burst_every = seconds(1), .burst_length = milliseconds(200), .burst_loss = 300'000},
                 test::seed(), kStart);
  const auto passages = send(link, 30'000, microseconds(100));
  int lost = 0;
  for (int k = 0; k < 30'000; ++k) {
    if (passages[k].arrived()) continue;
    ++lost;
    ASSERT_GE(microseconds(100) * k % seconds(1), milliseconds(800)) << k;
  }
  EXPECT_NEAR(lost, 6000 * 0.3, 250);
}

TEST(LinkModel, JitterKeepsTheOrder) {
  LinkModel link({.delay = milliseconds(2), .jitter = milliseconds(10), .jitter_every = milliseconds(5)},
                 test::seed(), kStart);
  const auto passages = send(link, 10'000, microseconds(50));
  EXPECT_TRUE(in_order(passages));
  Duration least = Duration::max(), most{0};
  for (int k = 0; k < 10'000; ++k) {
    const Duration taken = passages[k].arrives[0] - at(k * microseconds(50));
    least = std::min(least, taken);
    most = std::max(most, taken);
  }
  EXPECT_GE(least, milliseconds(2));
  EXPECT_LT(least, milliseconds(6));
  EXPECT_LE(most, milliseconds(12));
  EXPECT_GT(most, milliseconds(8));
}

TEST(LinkModel, EarlyPacketsOvertakeAllUnderWay) {
  LinkModel link({.delay = milliseconds(1), .early = 100'000}, test::seed(), kStart);
  const auto passages = send(link, 10'000, microseconds(20));
  int early = 0;
  for (int k = 0; k < 10'000; ++k) {
    const Duration taken = passages[k].arrives[0] - at(k * microseconds(20));
    ASSERT_TRUE(taken == Duration{0} || taken == milliseconds(1)) << taken.count();
    early += taken == Duration{0} ? 1 : 0;
  }
  EXPECT_NEAR(early, 1000, 150);
  EXPECT_EQ(link.counters().early, static_cast<uint64_t>(early));
}

TEST(LinkModel, OthersPassLatePackets) {
  LinkModel link({.late = 100'000, .detour = microseconds(500)}, test::seed(), kStart);
  const auto passages = send(link, 10'000, microseconds(20));
  int late = 0;
  for (int k = 0; k < 10'000; ++k) {
    const Duration taken = passages[k].arrives[0] - at(k * microseconds(20));
    ASSERT_LE(taken, microseconds(500));
    late += taken > Duration{0} ? 1 : 0;
  }
  EXPECT_NEAR(late, 1000, 150);
  EXPECT_FALSE(in_order(passages));
}

TEST(LinkModel, CopiesComeSoonAfter) {
  LinkModel link({.detour = microseconds(30), .duplication = 50'000}, test::seed(), kStart);
  int copies = 0;
  for (const Passage& passage : send(link, 10'000)) {
    if (passage.copies == 1) continue;
    ++copies;
    ASSERT_EQ(passage.copies, 2);
    ASSERT_GE(passage.arrives[1], passage.arrives[0]);
    ASSERT_LE(passage.arrives[1], passage.arrives[0] + microseconds(30));
  }
  EXPECT_NEAR(copies, 500, 100);
  EXPECT_EQ(link.counters().duplicated, static_cast<uint64_t>(copies));
}

TEST(LinkModel, CorruptsItsShareEachInItsOwnWay) {
  LinkModel link({.corruption = 10'000}, test::seed(), kStart);
  std::vector<uint64_t> damages;
  for (const Passage& passage : send(link, 100'000)) {
    if (passage.corrupted) damages.push_back(passage.damage);
  }
  EXPECT_NEAR(static_cast<double>(damages.size()), 1000, 200);
  std::ranges::sort(damages);
  EXPECT_TRUE(std::ranges::adjacent_find(damages) == damages.end());
}

}  // namespace
}  // namespace verbena::net
