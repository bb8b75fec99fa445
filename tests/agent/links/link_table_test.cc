// SPDX-License-Identifier: Apache-2.0
#include "agent/links/link_table.h"

#include <cerrno>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbena::agent {
namespace {

using control::Link;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

NetdevAddress address(const char* text) {
  NetdevAddress result;
  uint8_t ipv4[4];
  if (::inet_pton(AF_INET, text, ipv4) == 1) {
    result.address = roce::Address::from_ipv4(ipv4);
    result.prefix = 24;
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, text, result.address.bytes.data()), 1) << text;
    result.prefix = 64;
  }
  return result;
}

Netdev netdev(uint32_t index, std::string name) {
  Netdev netdev;
  netdev.index = index;
  netdev.name = std::move(name);
  netdev.up = netdev.carrier = true;
  netdev.mtu = 1500;
  netdev.mac = {0x52, 0x54, 0, 0, 0, static_cast<uint8_t>(index)};
  return netdev;
}

std::vector<std::string> names(const LinkTable& table) {
  std::vector<std::string> names;
  for (const Link& link : table.snapshot().links) names.push_back(link.name);
  return names;
}

// Returns a line such as "0 fe80::1" for each GID of the link at this place.
std::vector<std::string> gids(const LinkTable& table, size_t place = 0) {
  std::vector<std::string> gids;
  for (const control::GidEntry& entry : table.snapshot().links.at(place).gids) {
    char text[INET6_ADDRSTRLEN];
    ::inet_ntop(AF_INET6, entry.gid.bytes.data(), text, sizeof text);
    gids.push_back(std::to_string(entry.index) + " " + text);
  }
  return gids;
}

TEST(LinkTable, KnowsTheNetworksThatOtherHostsAreIn) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  NetdevAddress wide = address("10.9.3.7"), alone = address("10.77.0.1"), far = address("fd01::5");
  wide.prefix = 22;
  alone.prefix = 32;
  far.prefix = 128;
  for (const NetdevAddress& each :
       {wide, alone, far, address("fe80::1"), address("fd09::5"), address("fd09::6")}) {
    table.address_changed(2, each);
  }
  table.settle();
  std::vector<std::string> networks;
  for (const roce::Prefix& each : table.snapshot().links.at(0).networks)
    networks.push_back(roce::text_of(each));
  EXPECT_THAT(networks, ElementsAre("10.9.0.0/22", "fd09::/64"));
}

TEST(LinkTable, GivesALinkToANetdevThatIsUpAndHasAnAddress) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.settle();
  EXPECT_THAT(names(table), IsEmpty());

  table.address_changed(2, address("10.0.0.1"));
  EXPECT_TRUE(table.settle());
  ASSERT_THAT(names(table), ElementsAre("rxe_eth0"));
  const Link& link = table.snapshot().links[0];
  EXPECT_EQ(link.netdev, "eth0");
  EXPECT_EQ(link.interface_index, 2u);
  EXPECT_EQ(link.mtu, 1500u);
  EXPECT_TRUE(link.up);
  EXPECT_TRUE(link.automatic);
  EXPECT_FALSE(table.settle());
}

TEST(LinkTable, GivesNoneToANetdevThatIsDownOrAPortOfABridge) {
  LinkTable table;
  Netdev down = netdev(2, "eth0");
  down.up = false;
  Netdev port = netdev(3, "eth1");
  port.enslaved = true;
  table.netdev_changed(down);
  table.netdev_changed(port);
  table.address_changed(2, address("10.0.0.1"));
  table.address_changed(3, address("fe80::1"));
  table.settle();
  EXPECT_THAT(names(table), IsEmpty());

  table.netdev_changed(netdev(2, "eth0"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0"));
}

Netdev loopback() {
  Netdev loopback = netdev(1, "lo");
  loopback.loopback = true;
  loopback.mac = {};
  return loopback;
}

TEST(LinkTable, GivesLoopbackALinkOnlyWhileNoOtherIsUp) {
  LinkTable table;
  table.netdev_changed(loopback());
  table.address_changed(1, address("127.0.0.1"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_lo"));
  EXPECT_TRUE(table.has_automatic_loopback());

  Netdev other = netdev(2, "eth0");
  other.carrier = false;
  table.netdev_changed(other);
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0", "rxe_lo")) << "the other is not up yet";
  other.carrier = true;
  table.netdev_changed(other);
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0"));
  other.up = other.carrier = false;
  table.netdev_changed(other);
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0", "rxe_lo"));
  EXPECT_FALSE(table.holds_user_changes());
}

TEST(LinkTable, LeavesLoopbackItsLinkWhileProgramsMayBeUsingIt) {
  LinkTable table;
  table.netdev_changed(loopback());
  table.address_changed(1, address("127.0.0.1"));
  table.settle();
  const uint32_t index = table.snapshot().links.at(0).device_index;
  table.keep_loopback(true);
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  ASSERT_THAT(names(table), ElementsAre("rxe_eth0", "rxe_lo"));
  EXPECT_EQ(table.snapshot().links[1].device_index, index);
  table.keep_loopback(false);
  EXPECT_TRUE(table.settle());
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0"));
}

TEST(LinkTable, GivesLoopbackALinkWhereverTheUserWantsOne) {
  LinkTable table;
  table.netdev_changed(loopback());
  table.address_changed(1, address("127.0.0.1"));
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  ASSERT_THAT(names(table), ElementsAre("rxe_eth0"));
  ASSERT_TRUE(table.add_link("rxe_lo", "lo"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0", "rxe_lo"));
  EXPECT_TRUE(table.holds_user_changes());
}

TEST(LinkTable, MakesTheLinkOfLoopbackLastingWhenTheUserAddsIt) {
  LinkTable table;
  table.netdev_changed(loopback());
  table.address_changed(1, address("127.0.0.1"));
  table.settle();
  ASSERT_TRUE(table.add_link("rxe_lo", "lo"));
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0", "rxe_lo"));
}

TEST(LinkTable, PutsLoopbackLast) {
  LinkTable table;
  table.netdev_changed(loopback());
  table.address_changed(1, address("127.0.0.1"));
  ASSERT_TRUE(table.add_link("rxe_lo", "lo"));
  table.netdev_changed(netdev(7, "eth1"));
  table.address_changed(7, address("10.0.1.1"));
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0", "rxe_eth1", "rxe_lo"));
}

// The default GID of the MAC address 52:54:00:00:00:02.
constexpr const char* kDefaultGid = "fe80::5054:ff:fe00:2";

TEST(LinkTable, OrdersAddressesThatComeTogetherAsTheKernelDoes) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("fd00::1"));
  table.address_changed(2, address(kDefaultGid));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1", "2 fd00::1"));
}

TEST(LinkTable, HasTheDefaultGidAtIndexZeroThoughNoNetdevHasTheAddress) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1"));
  // A link-local address made otherwise (RFC 7217) is treated as any other address.
  table.address_changed(2, address("fe80::1234"));
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1", "2 fe80::1234"));
}

TEST(LinkTable, HasTheSameIndexesWheneverTheDefaultAddressComes) {
  for (const bool early : {false, true}) {
    LinkTable table;
    table.netdev_changed(netdev(2, "eth0"));
    if (early) table.address_changed(2, address(kDefaultGid));
    table.address_changed(2, address("10.0.0.1"));
    table.settle();
    if (!early) table.address_changed(2, address(kDefaultGid));
    table.settle();
    EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1"));
    table.address_removed(2, address(kDefaultGid));
    table.settle();
    EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1"));
  }
}

TEST(LinkTable, RemakesTheDefaultGidWhenTheMacAddressChanges) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  Netdev changed = netdev(2, "eth0");
  changed.mac[5] = 9;
  table.netdev_changed(changed);
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:9", "1 ::ffff:10.0.0.1"));
}

TEST(LinkTable, TellsWhichBondsHaveFailedOver) {
  LinkTable table;
  Netdev bond = netdev(2, "bond0"), other = netdev(3, "eth0");
  bond.bond = true;
  for (const Netdev& each : {bond, other}) {
    table.netdev_changed(each);
    table.address_changed(each.index, address(("10.0.0." + std::to_string(each.index)).c_str()));
  }
  table.settle();
  const auto before = table.snapshot().links;
  EXPECT_TRUE(table.failed_over(before).empty());
  table.address_removed(2, address("10.0.0.2"));  // removing an address is no failover
  table.settle();
  EXPECT_TRUE(table.failed_over(before).empty());
  bond.mac[5] = other.mac[5] = 9;
  table.netdev_changed(bond);
  table.netdev_changed(other);
  table.settle();
  EXPECT_EQ(table.failed_over(before), std::vector<uint32_t>{before[0].device_index});
}

TEST(LinkTable, HasNoDefaultGidWithoutAMacAddress) {
  LinkTable table;
  table.netdev_changed(loopback());
  table.address_changed(1, address("::1"));
  table.address_changed(1, address("127.0.0.1"));
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 ::ffff:127.0.0.1", "1 ::1"));
}

// The table of an agent with other rules: running programs know the address by its index.
TEST(LinkTable, LeavesAnAddressThatARestoredTableHasAtIndexZeroThere) {
  control::LinkSnapshot before;
  before.links.resize(1);
  before.links[0].name = "rxe_eth0";
  before.links[0].interface_index = 2;
  before.links[0].automatic = true;
  before.links[0].gids = {{0, address("10.0.0.1").address}};
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.restore(before);
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 ::ffff:10.0.0.1"));
  table.address_removed(2, address("10.0.0.1"));
  table.address_changed(2, address("10.0.0.2"));
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.2"));
}

TEST(LinkTable, KeepsEveryGidAtItsIndexAndFillsTheFirstHole) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  for (const char* text : {"10.0.0.1", "10.0.0.2", "10.0.0.3"}) table.address_changed(2, address(text));
  table.settle();
  table.address_removed(2, address("10.0.0.2"));
  EXPECT_TRUE(table.settle());
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1", "3 ::ffff:10.0.0.3"));
  table.address_changed(2, address("fd00::9"));
  table.address_changed(2, address("fd00::a"));
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1", "2 fd00::9",
                                       "3 ::ffff:10.0.0.3", "4 fd00::a"));
}

TEST(LinkTable, AnAddressWithTwoPrefixesStaysUntilBothAreGone) {
  LinkTable table;
  NetdevAddress wide = address("10.0.0.1");
  wide.prefix = 16;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.address_changed(2, wide);
  table.settle();
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1"));
  table.address_removed(2, address("10.0.0.1"));
  EXPECT_TRUE(table.settle());  // the link has one network fewer
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2", "1 ::ffff:10.0.0.1"));
  table.address_removed(2, wide);
  EXPECT_TRUE(table.settle());
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:2"));
}

TEST(LinkTable, StopsAtTheEndOfTheGidTable) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  for (int i = 0; i < 1100; ++i) {
    table.address_changed(
        2, address(("10.0." + std::to_string(i / 200) + "." + std::to_string(i % 200)).c_str()));
  }
  table.settle();
  EXPECT_EQ(gids(table).size(), control::kGidTableLength);
  // A free place goes to an address that waits for one.
  table.address_removed(2, address("10.0.0.5"));
  table.settle();
  EXPECT_EQ(gids(table).size(), control::kGidTableLength);
  EXPECT_EQ(gids(table)[6], "6 ::ffff:10.0.5.23");
}

TEST(LinkTable, KeepsALinkWhileItsNetdevIsDownOrWithoutAddresses) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  Netdev down = netdev(2, "eth0");
  down.carrier = false;
  table.netdev_changed(down);
  EXPECT_TRUE(table.settle());
  EXPECT_FALSE(table.snapshot().links.at(0).up);
  table.address_removed(2, address("10.0.0.1"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0"));
  table.netdev_removed(2);
  EXPECT_TRUE(table.settle());
  EXPECT_THAT(names(table), IsEmpty());
}

TEST(LinkTable, FollowsARenamedNetdevUnderTheSameLinkName) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  table.netdev_changed(netdev(2, "lan"));
  table.netdev_changed(netdev(3, "eth0"));
  table.address_changed(3, address("10.0.1.1"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0", "rxe_if3"));
  EXPECT_EQ(table.snapshot().links[0].netdev, "lan");
}

TEST(LinkTable, NeverUsesADeviceIndexAgain) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  const uint32_t first = table.snapshot().links.at(0).device_index;
  ASSERT_TRUE(table.delete_link("rxe_eth0"));
  ASSERT_TRUE(table.add_link("rxe_eth0", "eth0"));
  table.settle();
  EXPECT_GT(table.snapshot().links.at(0).device_index, first);
}

TEST(LinkTable, ADeletedLinkStaysDeletedUntilOneIsAdded) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  EXPECT_FALSE(table.holds_user_changes());
  ASSERT_TRUE(table.delete_link("rxe_eth0"));
  table.address_changed(2, address("10.0.0.2"));
  table.settle();
  EXPECT_THAT(names(table), IsEmpty());
  EXPECT_TRUE(table.holds_user_changes());
  ASSERT_TRUE(table.add_link("rxe_eth0", "eth0"));
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth0"));
  EXPECT_FALSE(table.holds_user_changes());
}

TEST(LinkTable, AnAddedLinkTakesTheAutomaticOnesPlace) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("10.0.0.1"));
  table.settle();
  const uint32_t index = table.snapshot().links.at(0).device_index;
  ASSERT_TRUE(table.add_link("rxe0", "eth0"));
  table.settle();
  ASSERT_THAT(names(table), ElementsAre("rxe0"));
  EXPECT_EQ(table.snapshot().links[0].device_index, index);
  EXPECT_FALSE(table.snapshot().links[0].automatic);
  EXPECT_TRUE(table.holds_user_changes());
}

TEST(LinkTable, ARenamedLinkIsTheSameDevice) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.netdev_changed(netdev(3, "eth1"));
  ASSERT_TRUE(table.add_link("rxe0", "eth0"));
  ASSERT_TRUE(table.add_link("rxe1", "eth1"));
  table.settle();
  const uint32_t device = table.snapshot().links.at(0).device_index;
  ASSERT_TRUE(table.rename_link("rxe0", "other"));
  EXPECT_TRUE(table.settle());
  EXPECT_EQ(table.snapshot().links.at(0).name, "other");
  EXPECT_EQ(table.snapshot().links.at(0).device_index, device);
  EXPECT_TRUE(table.rename_link("other", "other"));
  EXPECT_EQ(table.rename_link("other", "rxe1").error().code, EEXIST);
  EXPECT_EQ(table.rename_link("rxe0", "new").error().code, ENODEV);
  EXPECT_EQ(table.rename_link("other", "a/b").error().code, EINVAL);
}

TEST(LinkTable, RefusesWhatCannotBeAddedAndSaysWhy) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.netdev_changed(netdev(3, "eth1"));
  ASSERT_TRUE(table.add_link("rxe0", "eth0"));
  const auto code = [&](const char* name, const char* device) {
    const auto added = table.add_link(name, device);
    EXPECT_FALSE(added);
    EXPECT_FALSE(added.error().text.empty());
    return added.error().code;
  };
  EXPECT_EQ(code("rxe1", "eth7"), ENODEV);
  EXPECT_EQ(code("rxe0", "eth1"), EEXIST);
  EXPECT_EQ(code("rxe1", "eth0"), EEXIST);
  EXPECT_EQ(code("", "eth1"), EINVAL);
  EXPECT_EQ(code("..", "eth1"), EINVAL);
  EXPECT_EQ(code("a/b", "eth1"), EINVAL);
  EXPECT_EQ(code(std::string(64, 'x').c_str(), "eth1"), EINVAL);
  EXPECT_EQ(table.delete_link("rxe9").error().code, ENODEV);
}

TEST(LinkTable, ADumpRemovesWhatItDoesNotName) {
  LinkTable table;
  for (const uint32_t index : {2u, 3u}) {
    table.netdev_changed(netdev(index, "eth" + std::to_string(index)));
    table.address_changed(index, address("10.0.0.1"));
    table.address_changed(index, address("10.0.0.2"));
  }
  table.settle();
  table.begin_dump();
  table.netdev_changed(netdev(3, "eth3"));
  table.address_changed(3, address("10.0.0.2"));
  table.end_dump();
  table.settle();
  EXPECT_THAT(names(table), ElementsAre("rxe_eth3"));
  EXPECT_THAT(gids(table), ElementsAre("0 fe80::5054:ff:fe00:3", "2 ::ffff:10.0.0.2"));
}

TEST(LinkTable, GoesOnWhereAnEarlierOneStopped) {
  LinkTable before;
  before.netdev_changed(netdev(2, "eth0"));
  before.netdev_changed(netdev(3, "eth1"));
  before.netdev_changed(netdev(4, "eth2"));
  before.address_changed(2, address("10.0.0.1"));
  before.address_changed(2, address("10.0.0.2"));
  before.address_changed(3, address("10.0.1.1"));
  before.address_changed(4, address("10.0.2.1"));
  before.settle();
  before.address_removed(2, address("10.0.0.1"));
  ASSERT_TRUE(before.delete_link("rxe_eth1"));
  ASSERT_TRUE(before.add_link("mine", "eth2"));
  before.settle();

  LinkTable after;
  after.netdev_changed(netdev(2, "eth0"));
  after.netdev_changed(netdev(3, "eth1"));
  after.netdev_changed(netdev(4, "eth2"));
  after.address_changed(2, address("10.0.0.2"));
  after.address_changed(3, address("10.0.1.1"));
  after.address_changed(4, address("10.0.2.1"));
  after.restore(before.snapshot());
  after.settle();
  EXPECT_EQ(after.snapshot().links, before.snapshot().links);
  EXPECT_EQ(after.snapshot().deleted, before.snapshot().deleted);
  EXPECT_EQ(after.snapshot().next_device_index, before.snapshot().next_device_index);
}

TEST(LinkTable, RemembersWhomALinkHearsForAsLongAsItIsThere) {
  LinkTable table;
  table.netdev_changed(netdev(2, "eth0"));
  table.address_changed(2, address("192.0.2.1"));
  table.settle();
  const roce::Prefix peers = *roce::parse_prefix("192.0.2.0/24");
  EXPECT_FALSE(table.holds_user_changes());
  ASSERT_TRUE(table.set_peers("rxe_eth0", {peers}));
  EXPECT_TRUE(table.settle());
  EXPECT_THAT(table.snapshot().links.at(0).peers, ElementsAre(peers));
  EXPECT_TRUE(table.holds_user_changes());

  ASSERT_TRUE(table.add_link("rxe0", "eth0"));  // a second name for the same link
  EXPECT_TRUE(table.settle());
  EXPECT_THAT(table.snapshot().links.at(0).peers, ElementsAre(peers));

  LinkTable next;
  next.netdev_changed(netdev(2, "eth0"));
  next.address_changed(2, address("192.0.2.1"));
  next.restore(table.snapshot());
  EXPECT_TRUE(next.settle());
  EXPECT_THAT(next.snapshot().links.at(0).peers, ElementsAre(peers));

  ASSERT_TRUE(next.set_peers("rxe0", {}));
  EXPECT_TRUE(next.settle());
  EXPECT_THAT(next.snapshot().links.at(0).peers, IsEmpty());
  EXPECT_EQ(next.set_peers("rxe1", {peers}).error().code, ENODEV);
}

// A slot may be given back before the table is settled, which asks about loopback's link.
TEST(LinkTable, TakesNoLinkOverWhoseNetdevHasGone) {
  LinkTable before;
  before.netdev_changed(netdev(2, "eth0"));
  before.netdev_changed(netdev(3, "vpn0"));
  before.address_changed(2, address("10.0.0.1"));
  before.address_changed(3, address("10.0.1.1"));
  before.settle();
  LinkTable after;
  after.netdev_changed(netdev(2, "eth0"));
  after.address_changed(2, address("10.0.0.1"));
  after.restore(before.snapshot());
  EXPECT_FALSE(after.has_automatic_loopback());
  after.settle();
  ASSERT_EQ(after.snapshot().links.size(), 1u);
  EXPECT_EQ(after.snapshot().links[0].name, "rxe_eth0");
  EXPECT_EQ(after.snapshot().next_device_index, before.snapshot().next_device_index);
}

// Names become file names, and device indexes identify devices.
TEST(LinkTable, TakesNoLinksOverThatItWouldNotHaveMade) {
  control::LinkSnapshot left;
  left.next_device_index = UINT32_MAX;
  const auto leave = [&](const char* name, uint32_t device_index, uint32_t interface_index) {
    control::Link& link = left.links.emplace_back();
    link.name = name;
    link.device_index = device_index;
    link.interface_index = interface_index;
  };
  leave("good", 7, 2);
  leave("twin", 7, 3);
  leave("../../x", 8, 4);
  leave("far", UINT32_MAX, 5);
  LinkTable table;
  for (uint32_t index = 2; index <= 5; ++index)
    table.netdev_changed(netdev(index, "eth" + std::to_string(index)));
  table.restore(left);
  table.settle();
  std::vector<std::string> names;
  for (const control::Link& link : table.snapshot().links) names.push_back(link.name);
  EXPECT_THAT(names, ElementsAre("good"));
  EXPECT_LT(table.snapshot().next_device_index, UINT32_MAX / 2);
}

}  // namespace
}  // namespace verbena::agent
