// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "adapter/congestion/flow.h"

namespace verbena::congestion {
namespace {

using roce::Psn;

PacketTrain run(uint32_t first, uint32_t packets) {
  PacketTrain r;
  r.first = Psn(first);
  r.packets = packets;
  return r;
}

TEST(PacketTrains, FindsTheRunOfAPsnAcrossTheWrap) {
  PacketTrains runs;
  for (uint32_t i = 0; i < 1000; ++i) runs.add(run(0xfff000 + i * 10, 10));
  for (uint32_t i = 0; i < 10'000; ++i) {
    const auto* found = runs.find(Psn(0xfff000 + i));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->first, Psn(0xfff000 + i / 10 * 10));
  }
  EXPECT_EQ(runs.find(Psn(0xffefff)), nullptr);
  EXPECT_EQ(runs.find(Psn(0xfff000 + 10'000)), nullptr);
}

TEST(PacketTrains, ForgetsWhatLiesWhollyBefore) {
  PacketTrains runs;
  for (uint32_t i = 0; i < 10; ++i) runs.add(run(i * 10, 10));
  runs.drop_before(Psn(35));
  EXPECT_EQ(runs.size(), 7u);
  EXPECT_EQ(runs.find(Psn(29)), nullptr);
  EXPECT_NE(runs.find(Psn(30)), nullptr) << "a part of it is in flight";
  runs.drop_before(Psn(100));
  EXPECT_TRUE(runs.empty());
}

TEST(PacketTrains, CutsOffWhatIsSentAgain) {
  PacketTrains runs;
  for (uint32_t i = 0; i < 10; ++i) runs.add(run(i * 10, 10));
  runs.drop_from(Psn(35));
  EXPECT_EQ(runs.back().limit(), Psn(35));
  runs.drop_from(Psn(30));
  EXPECT_EQ(runs.back().limit(), Psn(30));
  runs.drop_from(Psn(0));
  EXPECT_TRUE(runs.empty());
}

TEST(PacketTrains, GrowCoarserAndNotWithoutEnd) {
  PacketTrains runs;
  for (uint32_t i = 0; i < 2 * PacketTrains::kMax; ++i) runs.add(run(i, 1));
  EXPECT_EQ(runs.size(), PacketTrains::kMax);
  EXPECT_EQ(runs.back().limit(), Psn(2 * PacketTrains::kMax));
  EXPECT_NE(runs.find(Psn(2 * PacketTrains::kMax - 1)), nullptr);
}

}  // namespace
}  // namespace verbena::congestion
