// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "adapter/net/packets.h"
#include "adapter/net/udp/socket_address.h"

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

TEST_P(Steering, BringsAPacketForAnUnusedSlotToSlotZeroWhichCountsIt) {
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

TEST_P(Steering, BringsAPacketTooShortForAQpnToSlotZero) {
  PortGroup group(2);
  Stranger stranger(GetParam(), GetParam(), group.port);
  stranger.send(pattern(6, 1));
  EXPECT_TRUE(Collector::receive_drops(group[0], DropReason::kTruncated, 1));
}

INSTANTIATE_TEST_SUITE_P(Loopback, Steering, ::testing::Values("127.0.0.1", "::1"));

TEST(Steering, KeepsMoreSlotsApartThanAPortHasRuns) {
  // More destinations than the port has runs: it must flush runs itself, and no super-packet may mix slots.
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

TEST(Steering, SharesSocketsWhenThereAreMoreSlotsThanDescriptors) {
  constexpr uint32_t kSlots = 40;
  constexpr rlim_t kDescriptors = 96;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = kDescriptors;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  PortGroup group(kSlots);
  for (const char* host : {"127.0.0.1", "::1"}) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      send(group[0], testing::path(host, host), write_middle(slot, 0, 32), pattern(32, slot));
    }
  }
  EXPECT_TRUE(group[0].flush());
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);

  rlim_t ours = 0;
  for (int fd = 0; fd < static_cast<int>(kDescriptors); ++fd) {
    SocketAddress local{};
    socklen_t length = sizeof local;
    if (getsockname(fd, &local.generic, &length) != 0) continue;
    if (local.generic.sa_family != AF_INET && local.generic.sa_family != AF_INET6) continue;
    if (port_of(local) >= 0xc000 && port_of(local) != group.port) ++ours;
  }
  EXPECT_EQ(ours, kDescriptors / 4);
  EXPECT_EQ(group[0].counters().send_errors, 0u);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    Collector collector;
    ASSERT_TRUE(collector.receive(group[slot], 2)) << slot;
    EXPECT_EQ(collector.packets[0].path.source, address("127.0.0.1"));
    EXPECT_EQ(collector.packets[1].path.source, address("::1"));
  }
}

TEST(Steering, RefusesADescriptorThatIsNoSocket) {
  EXPECT_EQ(attach_slot_steering(-1, 1).error().code, EBADF);
}

}  // namespace
}  // namespace verbena::net::testing
