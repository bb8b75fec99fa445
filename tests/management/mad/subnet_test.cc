// SPDX-License-Identifier: Apache-2.0
#include "management/mad/subnet.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "management/mad/example_subnet.h"

namespace verbena::mad {
namespace {

TEST(Subnet, HasOurOwnAdapterAtTheFirstPort) {
  const Subnet subnet(adapter(kOwnGuid));
  EXPECT_EQ(subnet.own().adapter.guid, kOwnGuid);
  EXPECT_EQ(subnet.own().switch_port, Subnet::kOwnPort);
  EXPECT_EQ(subnet.switch_ports(), 1);
}

TEST(Subnet, GivesAnAdapterTheSameLidOnEveryHost) {
  Subnet here(adapter(kOwnGuid));
  Subnet there(adapter(kOtherGuid));
  here.hear(adapter(kOtherGuid), ipv4(2), at_second(0));
  there.hear(adapter(kOwnGuid), ipv4(1), at_second(0));
  EXPECT_EQ(here.own().lid, there.by_guid(kOwnGuid)->lid);
  EXPECT_EQ(there.own().lid, here.by_guid(kOtherGuid)->lid);
}

TEST(Subnet, GivesNoLidTwice) {
  Subnet subnet(adapter(kOwnGuid));
  for (uint64_t i = 0; i < Subnet::kMaxMembers; ++i) subnet.hear(adapter(0x100 + i), ipv4(2), at_second(0));
  std::set<uint16_t> lids{Subnet::kSwitchLid};
  for (const auto& [port, member] : subnet.members()) {
    EXPECT_TRUE(lids.insert(member.lid).second);
    EXPECT_LE(member.lid, Subnet::kLastLid);
  }
  EXPECT_EQ(subnet.members().size(), Subnet::kMaxMembers);
}

TEST(Subnet, TakesNoAnnouncementOfItsOwn) {
  Subnet subnet(adapter(kOwnGuid));
  EXPECT_FALSE(subnet.hear(adapter(kOwnGuid), ipv4(2), at_second(0)));
  EXPECT_EQ(subnet.members().size(), 1U);
}

TEST(Subnet, DisplacesAStrangerButNoneThatHasAnnouncedItself) {
  Subnet subnet(adapter(kOwnGuid));
  for (uint64_t i = 0; i < Subnet::kMaxMembers - 2; ++i) {
    ASSERT_TRUE(subnet.hear(adapter(0x100 + i), ipv4(2), at_second(0)));
  }
  ASSERT_NE(subnet.meet(ipv4(77), at_second(1)), nullptr);
  ASSERT_NE(subnet.meet(ipv4(78), at_second(2)), nullptr);  // replaces the other stranger
  EXPECT_EQ(subnet.by_guid(guid_of_address(ipv4(77))), nullptr);
  EXPECT_TRUE(subnet.hear(adapter(0x10000), ipv4(3), at_second(3)));
  EXPECT_EQ(subnet.by_guid(guid_of_address(ipv4(78))), nullptr);
  EXPECT_FALSE(subnet.hear(adapter(0x10001), ipv4(4), at_second(4)));
  EXPECT_EQ(subnet.meet(ipv4(79), at_second(5)), nullptr);
}

TEST(Subnet, ShowsWhoIsLookedForOnlyOnceItHasSentSomething) {
  Subnet subnet(adapter(kOwnGuid));
  const Member* member = subnet.look_for(default_gid(kOtherGuid), at_second(0));
  ASSERT_NE(member, nullptr);
  EXPECT_EQ(member->adapter.guid, kOtherGuid);
  EXPECT_EQ(subnet.at_port(member->switch_port), nullptr);
  EXPECT_EQ(subnet.meet(default_gid(kOtherGuid), at_second(1)), member);
  EXPECT_EQ(subnet.at_port(member->switch_port), member);
}

TEST(Subnet, KnowsAStrangerAgainThatAnnouncesItself) {
  Subnet subnet(adapter(kOwnGuid));
  subnet.meet(ipv4(2), at_second(0));
  subnet.hear(adapter(kOtherGuid), ipv4(2), at_second(1));
  EXPECT_EQ(subnet.members().size(), 2U);
  EXPECT_TRUE(subnet.by_guid(kOtherGuid)->announced);
}

TEST(Subnet, KeepsAnAddressThatIsHeardAndNotOneThatIsNot) {
  Subnet subnet(adapter(kOwnGuid));
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

Adapter with_networks(uint64_t guid, std::vector<std::string> networks) {
  Adapter one = adapter(guid);
  std::vector<roce::Prefix> prefixes;
  for (const std::string& each : networks) prefixes.push_back(roce::parse_prefix(each).value());
  one.network = network_of(prefixes);
  return one;
}

TEST(Subnet, HasTheSameSwitchOnAllHostsOfANetwork) {
  // The host part of the address does not matter.
  const Subnet here(with_networks(kOwnGuid, {"10.9.0.1/22"})),
      there(with_networks(kOtherGuid, {"10.9.3.7/22"}));
  EXPECT_EQ(here.switch_guid(), there.switch_guid());
  EXPECT_NE(here.switch_guid(), Subnet(with_networks(kOwnGuid, {"10.9.4.1/22"})).switch_guid());
  EXPECT_EQ(Subnet(with_networks(kOwnGuid, {"fd09::1/64"})).switch_guid(),
            Subnet(with_networks(kOtherGuid, {"fd09::2:3:4:5/64"})).switch_guid());
}

TEST(Subnet, HasASwitchThatDoesNotDependOnTheOrderOfAddresses) {
  const Subnet here(with_networks(kOwnGuid, {"10.1.0.1/16", "10.9.0.1/24", "fd09::1/64"}));
  const Subnet there(with_networks(kOtherGuid, {"fd09::2/64", "10.9.0.2/24", "10.1.0.2/16"}));
  EXPECT_EQ(here.switch_guid(), there.switch_guid());
}

// IPv4 goes first. A host that has both families derives the same switch as one that has IPv4 only.
TEST(Subnet, HasASwitchOfIpv4sNetworkWhereThereIsOne) {
  Subnet here(with_networks(kOwnGuid, {"10.9.0.1/24", "fd09::1/64"}));
  const uint64_t alone = here.switch_guid();
  EXPECT_EQ(alone, Subnet(with_networks(kOtherGuid, {"10.9.0.2/24"})).switch_guid());
  here.hear(with_networks(kOtherGuid, {"fd09::2/64"}), ipv4(2), at_second(0));
  EXPECT_EQ(here.switch_guid(), alone);
}

TEST(Subnet, AgreesOnItsSwitchWithHostsOfOtherNetworks) {
  const Adapter a = with_networks(kOwnGuid, {"10.9.0.1/22"}), b = with_networks(kOtherGuid, {"10.8.0.1/16"}),
                c = with_networks(0x77, {});
  Subnet of_a(a), of_b(b), of_c(c);
  const uint64_t alone = of_b.switch_guid();
  of_a.hear(b, ipv4(2), at_second(0)), of_a.hear(c, ipv4(3), at_second(0));
  of_b.hear(a, ipv4(1), at_second(0)), of_b.hear(c, ipv4(3), at_second(0));
  of_c.hear(a, ipv4(1), at_second(0)), of_c.hear(b, ipv4(2), at_second(0));
  EXPECT_EQ(of_a.switch_guid(), of_b.switch_guid());
  EXPECT_EQ(of_a.switch_guid(), of_c.switch_guid());
  of_b.forget_before(at_second(1));
  EXPECT_EQ(of_b.switch_guid(), alone);
}

TEST(Subnet, HasOneSwitchForAllThatHaveLinkLocalAddressesOnly) {
  const Subnet here(with_networks(kOwnGuid, {})), there(with_networks(kOtherGuid, {}));
  EXPECT_EQ(here.switch_guid(), there.switch_guid());
  EXPECT_NE(here.switch_guid(), 0U);
}

TEST(Subnet, HasNoSwitchThatAStrangerCallsAsAnAdapterIsCalled) {
  Subnet subnet(adapter(kOwnGuid));
  Adapter stranger = adapter(kOtherGuid);
  for (const uint64_t guid : {kOwnGuid, kOtherGuid}) {
    stranger.network = {kIpv4Network, guid};
    subnet.hear(stranger, ipv4(2), at_second(0));
    EXPECT_EQ(subnet.switch_guid(), kSwitchGuid);
  }
}

}  // namespace
}  // namespace verbena::mad
