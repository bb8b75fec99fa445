// SPDX-License-Identifier: Apache-2.0
#include "fabric/subnet.h"

#include <set>

#include <gtest/gtest.h>

#include "fabric/example_subnet.h"

namespace verbena::fabric {
namespace {

TEST(Subnet, HasOurOwnAdapterAtTheFirstPort) {
  const Subnet subnet(adapter(kOwnGuid), kSwitchGuid);
  EXPECT_EQ(subnet.own().adapter.guid, kOwnGuid);
  EXPECT_EQ(subnet.own().switch_port, Subnet::kOwnPort);
  EXPECT_EQ(subnet.switch_ports(), 1);
}

TEST(Subnet, GivesAnAdapterTheSameLidOnEveryHost) {
  Subnet here(adapter(kOwnGuid), kSwitchGuid);
  Subnet there(adapter(kOtherGuid), kSwitchGuid);
  here.hear(adapter(kOtherGuid), ipv4(2), at_second(0));
  there.hear(adapter(kOwnGuid), ipv4(1), at_second(0));
  EXPECT_EQ(here.own().lid, there.by_guid(kOwnGuid)->lid);
  EXPECT_EQ(there.own().lid, here.by_guid(kOtherGuid)->lid);
}

TEST(Subnet, GivesNoLidTwice) {
  Subnet subnet(adapter(kOwnGuid), kSwitchGuid);
  for (uint64_t i = 0; i < Subnet::kMostMembers; ++i) subnet.hear(adapter(0x100 + i), ipv4(2), at_second(0));
  std::set<uint16_t> lids{Subnet::kSwitchLid};
  for (const auto& [port, member] : subnet.members()) {
    EXPECT_TRUE(lids.insert(member.lid).second);
    EXPECT_LE(member.lid, Subnet::kLastLid);
  }
  EXPECT_EQ(subnet.members().size(), Subnet::kMostMembers);
}

TEST(Subnet, TakesNoAnnouncementOfItsOwn) {
  Subnet subnet(adapter(kOwnGuid), kSwitchGuid);
  EXPECT_FALSE(subnet.hear(adapter(kOwnGuid), ipv4(2), at_second(0)));
  EXPECT_EQ(subnet.members().size(), 1U);
}

TEST(Subnet, DisplacesAStrangerButNoneThatHasAnnouncedItself) {
  Subnet subnet(adapter(kOwnGuid), kSwitchGuid);
  for (uint64_t i = 0; i < Subnet::kMostMembers - 2; ++i) {
    ASSERT_TRUE(subnet.hear(adapter(0x100 + i), ipv4(2), at_second(0)));
  }
  ASSERT_NE(subnet.meet(ipv4(77), at_second(1)), nullptr);
  ASSERT_NE(subnet.meet(ipv4(78), at_second(2)), nullptr);  // in place of the other stranger
  EXPECT_EQ(subnet.by_address(ipv4(77)), nullptr);
  EXPECT_TRUE(subnet.hear(adapter(0x10000), ipv4(3), at_second(3)));
  EXPECT_EQ(subnet.by_address(ipv4(78)), nullptr);
  EXPECT_FALSE(subnet.hear(adapter(0x10001), ipv4(4), at_second(4)));
  EXPECT_EQ(subnet.meet(ipv4(79), at_second(5)), nullptr);
}

TEST(Subnet, ShowsWhoIsLookedForOnlyOnceItHasSentSomething) {
  Subnet subnet(adapter(kOwnGuid), kSwitchGuid);
  const Member* member = subnet.look_for(default_gid(kOtherGuid), at_second(0));
  ASSERT_NE(member, nullptr);
  EXPECT_EQ(member->adapter.guid, kOtherGuid);
  EXPECT_EQ(subnet.at_port(member->switch_port), nullptr);
  EXPECT_EQ(subnet.meet(default_gid(kOtherGuid), at_second(1)), member);
  EXPECT_EQ(subnet.at_port(member->switch_port), member);
}

TEST(Subnet, KnowsAStrangerAgainThatAnnouncesItself) {
  Subnet subnet(adapter(kOwnGuid), kSwitchGuid);
  subnet.meet(ipv4(2), at_second(0));
  subnet.hear(adapter(kOtherGuid), ipv4(2), at_second(1));
  EXPECT_EQ(subnet.members().size(), 2U);
  EXPECT_TRUE(subnet.by_guid(kOtherGuid)->announced);
}

TEST(Subnet, KeepsAnAddressThatIsHeardAndNotOneThatIsNot) {
  Subnet subnet(adapter(kOwnGuid), kSwitchGuid);
  subnet.hear(adapter(kOtherGuid), ipv4(2), at_second(0));
  subnet.hear(adapter(kOtherGuid), ipv4(3), at_second(1));
  EXPECT_EQ(subnet.by_guid(kOtherGuid)->address, ipv4(2));
  subnet.hear(adapter(kOtherGuid), ipv4(3), at_second(60));
  EXPECT_EQ(subnet.by_guid(kOtherGuid)->address, ipv4(3));
}

TEST(Subnet, ForgetsWhoIsNotHeardAndNeverItself) {
  Subnet subnet = example_subnet();
  subnet.forget_before(at_second(0));
  EXPECT_EQ(subnet.members().size(), 2U);
  subnet.forget_before(at_second(1));
  EXPECT_EQ(subnet.members().size(), 1U);
  EXPECT_EQ(subnet.own().adapter.guid, kOwnGuid);
}

}  // namespace
}  // namespace verbena::fabric
