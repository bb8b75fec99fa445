// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/reorder_buffer.h"

#include <vector>

#include <gtest/gtest.h>

#include "adapter/transport/control_packets.h"

namespace verbena::transport {
namespace {

using roce::Psn;

class ReorderBufferTest : public testing::Test {
 protected:
  bool keep(uint32_t psn, uint32_t psns = 1) {
    std::vector<std::byte> payload(100, static_cast<std::byte>(psn));
    roce::Packet packet;
    packet.headers.psn = Psn(psn);
    packet.payload = payload;
    return kept.add(packet, psns, expected);
  }
  std::vector<std::pair<uint32_t, uint32_t>> ranges() const {
    std::vector<std::pair<uint32_t, uint32_t>> all;
    kept.for_each_range(expected, [&](Psn first, uint32_t count) {
      all.emplace_back(first.value(), count);
      return true;
    });
    return all;
  }

  static constexpr size_t kBudget = 4 << 20;
  ByteBudget budget{kBudget};
  ReorderBuffer kept{budget};
  Psn expected{0xfffffe};
};

TEST_F(ReorderBufferTest, GivesBackWhatItWasGiven) {
  ASSERT_TRUE(keep(5));
  ASSERT_TRUE(kept.has(Psn(5)));
  const roce::Packet packet = kept.at(Psn(5));
  EXPECT_EQ(packet.headers.psn, Psn(5));
  EXPECT_EQ(packet.payload.size(), 100u);
  EXPECT_EQ(packet.payload[99], std::byte{5});
  kept.erase(Psn(5));
  EXPECT_FALSE(kept.has(Psn(5)));
  EXPECT_TRUE(kept.empty());
  EXPECT_EQ(budget.used(), 0u);
}

TEST_F(ReorderBufferTest, KeepsEachOnce) {
  EXPECT_TRUE(keep(3));
  EXPECT_FALSE(keep(3));
}

TEST_F(ReorderBufferTest, TellsRunsAcrossTheWrapWhateverTheOrder) {
  for (const uint32_t psn : {7u, 0xffffffu, 1u, 0u, 900u}) ASSERT_TRUE(keep(psn));
  EXPECT_EQ(ranges(), (std::vector<std::pair<uint32_t, uint32_t>>{{0xffffff, 3}, {7, 1}, {900, 1}}));
}

TEST_F(ReorderBufferTest, CountsAllPsnsOfARead) {
  ASSERT_TRUE(keep(2, 10));
  ASSERT_TRUE(keep(12));
  ASSERT_TRUE(keep(20));
  EXPECT_EQ(ranges(), (std::vector<std::pair<uint32_t, uint32_t>>{{2, 11}, {20, 1}}));
}

TEST_F(ReorderBufferTest, KeepsNothingTooFarAhead) {
  EXPECT_TRUE(keep((expected + (ReorderBuffer::kMaxAhead - 1)).value()));
  EXPECT_FALSE(keep((expected + ReorderBuffer::kMaxAhead).value()));
}

TEST_F(ReorderBufferTest, LeavesSomethingOfTheBudgetToTheNext) {
  uint32_t psn = 0;
  while (keep(psn)) ++psn;
  EXPECT_GT(psn, 1000u);
  EXPECT_NEAR(static_cast<double>(budget.used()), kBudget * 2. / 3, 8192);
  ReorderBuffer other(budget);
  uint32_t kept_by_other = 0;
  roce::Packet packet;
  std::vector<std::byte> payload(100);
  packet.payload = payload;
  for (bool fits = true; fits; kept_by_other += fits ? 1 : 0) {
    packet.headers.psn = Psn(kept_by_other);
    fits = other.add(packet, 1, Psn(0));
  }
  EXPECT_GT(kept_by_other, 500u);
  EXPECT_LT(budget.used(), kBudget);
  other.clear();
  kept.clear();
  EXPECT_EQ(budget.used(), 0u);
}

// The budget counts the places for missing packets as well. Otherwise a peer with many connections could use
// much memory with one packet in each.
TEST_F(ReorderBufferTest, CountsThePlaceForThoseBetweenToo) {
  ASSERT_TRUE(keep((expected + (ReorderBuffer::kMaxAhead - 1)).value()));
  EXPECT_GE(budget.used(), ReorderBuffer::kMaxAhead * sizeof(void*));
  kept.erase(expected + (ReorderBuffer::kMaxAhead - 1));
  EXPECT_EQ(budget.used(), 0u);
  while (budget.take(1 << 10, 0)) {
  }
  const size_t used = budget.used();
  EXPECT_FALSE(keep(1));
  EXPECT_EQ(budget.used(), used);
}

TEST(ArrivalsTest, ReadWhatWasWritten) {
  Sack written;
  written.expected = Psn(0xfffff0);
  written.ranges[written.count++] = {Psn(0xfffff8), 2};
  written.ranges[written.count++] = {Psn(3), 1000};
  std::array<std::byte, Sack::kMaxBytes> payload;
  const uint32_t bytes = written.write(payload);
  const Sack read = Sack::read({payload.data(), bytes});
  EXPECT_EQ(read.expected, written.expected);
  ASSERT_EQ(read.count, 2u);
  EXPECT_EQ(read.ranges[1].first, Psn(3));
  EXPECT_EQ(read.ranges[1].count, 1000u);
}

TEST(ArrivalsTest, EndAtWhatMakesNoSense) {
  Sack written;
  written.ranges[written.count++] = {Psn(5), 2};
  written.ranges[written.count++] = {Psn(4), 1};  // lies before the previous range
  written.ranges[written.count++] = {Psn(9), 1};
  std::array<std::byte, Sack::kMaxBytes> payload;
  const uint32_t bytes = written.write(payload);
  EXPECT_EQ(Sack::read({payload.data(), bytes}).count, 1u);
  EXPECT_EQ(Sack::read({payload.data(), 9}).count, 0u);
  EXPECT_EQ(Sack::read({}).count, 0u);
}

}  // namespace
}  // namespace verbena::transport
