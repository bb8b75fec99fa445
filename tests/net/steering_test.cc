// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "net/packets.h"

namespace verbena::net::testing {
namespace {

class Steering : public ::testing::TestWithParam<const char*> {};

TEST_P(Steering, BringsAPacketToTheSocketOfItsSlot) {
  constexpr uint32_t kSlots = 5;
  PortGroup group(kSlots);
  const roce::Path path = testing::path(GetParam(), GetParam());
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    send(group[0], path, write_middle(slot, slot, 64), pattern(64, slot));
  }
  group[0].flush();
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    Collector collector;
    ASSERT_TRUE(collector.receive(group[slot], 1));
    EXPECT_EQ(collector.packets[0].headers.destination.slot(), slot);
    EXPECT_EQ(collector.packets[0].payload, pattern(64, slot));
    EXPECT_EQ(group[slot].counters().received_packets, 1u);
  }
}

TEST_P(Steering, BringsAPacketForNobodysSlotToSlotZeroWhichCountsIt) {
  PortGroup group(3);
  const roce::Path path = testing::path(GetParam(), GetParam());
  for (const uint32_t slot : {3u, 100u, roce::Qpn::kSlots - 1}) {
    send(group[1], path, write_middle(slot, 0, 16), pattern(16, 1));
  }
  group[1].flush();
  EXPECT_TRUE(Collector::receive_drops(group[0], DropReason::kForeignSlot, 3));
  EXPECT_EQ(group[1].counters().received_packets, 0u);
  EXPECT_EQ(group[2].counters().received_packets, 0u);
}

TEST_P(Steering, BringsWhatIsTooShortForAQpnToSlotZero) {
  PortGroup group(2);
  Stranger stranger(GetParam(), GetParam(), group.port);
  stranger.send(pattern(6, 1));
  EXPECT_TRUE(Collector::receive_drops(group[0], DropReason::kTruncated, 1));
}

INSTANTIATE_TEST_SUITE_P(Loopback, Steering, ::testing::Values("127.0.0.1", "::1"));

TEST(Steering, OfMoreSlotsThanOneRunHoldsKeepsThemApart) {
  // More destinations than the port has runs: it must flush by itself, and no super-packet may mix slots.
  constexpr uint32_t kSlots = 40;
  constexpr uint32_t kRounds = 3;
  PortGroup group(kSlots);
  const roce::Path path = testing::path("127.0.0.1", "127.0.0.1");
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      ASSERT_EQ(send(group[0], path, write_middle(slot, round, 32), pattern(32, slot)),
                transport::SendStatus::kSent);
    }
  }
  ASSERT_TRUE(group[0].flush());
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    Collector collector;
    ASSERT_TRUE(collector.receive(group[slot], kRounds)) << slot;
    for (uint32_t round = 0; round < kRounds; ++round) {
      EXPECT_EQ(collector.packets[round].headers.psn, roce::Psn(round));
    }
  }
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_EQ(group[slot].counters().received_packets, kRounds);
  }
}

TEST(Steering, IsRefusedForWhatIsNoSocketOfAGroup) {
  EXPECT_EQ(attach_slot_steering(-1, 1).error().code, EBADF);
}

}  // namespace
}  // namespace verbena::net::testing
