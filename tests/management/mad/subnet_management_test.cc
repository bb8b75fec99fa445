// SPDX-License-Identifier: Apache-2.0
#include "management/mad/subnet_management.h"

#include <initializer_list>

#include <gtest/gtest.h>

#include "management/mad/example_subnet.h"

namespace verbena::mad {
namespace {

constexpr size_t kDataAt = 64;
constexpr uint16_t kPermissive = Subnet::kPermissiveLid;

// A directed-route MAD with these hops.
Mad directed(std::initializer_list<uint8_t> hops, uint16_t attribute, uint32_t modifier = 0) {
  Mad mad = request(kClassSubnDirected, kMethodGet, attribute, modifier);
  mad.set_u8(7, static_cast<uint8_t>(hops.size()));
  mad.set(32, kPermissive);
  mad.set(34, kPermissive);
  size_t hop = 0;
  for (const uint8_t port : hops) mad.set_u8(128 + ++hop, port);
  return mad;
}

uint64_t node_guid_at_end_of(std::initializer_list<uint8_t> hops) {
  Subnet subnet = example_subnet();
  const auto answer = answer_subnet_management(subnet, directed(hops, kNodeInfo), kPermissive);
  return answer ? answer->get<uint64_t>(kDataAt + 12) : 0;
}

TEST(SubnetManagement, FollowsDirectedRoutes) {
  EXPECT_EQ(node_guid_at_end_of({}), kOwnGuid);
  EXPECT_EQ(node_guid_at_end_of({1}), kSwitchGuid);
  EXPECT_EQ(node_guid_at_end_of({1, 1}), kOwnGuid);
  EXPECT_EQ(node_guid_at_end_of({1, 2}), kOtherGuid);
}

TEST(SubnetManagement, AnswersNothingWhereARouteLeadsNowhere) {
  EXPECT_EQ(node_guid_at_end_of({2}), 0U);        // an adapter has one port
  EXPECT_EQ(node_guid_at_end_of({1, 0}), 0U);     // the switch itself
  EXPECT_EQ(node_guid_at_end_of({1, 3}), 0U);     // nothing is plugged in there
  EXPECT_EQ(node_guid_at_end_of({1, 2, 1}), 0U);  // an adapter passes nothing on
}

TEST(SubnetManagement, TurnsTheHeaderRoundAndNotesTheWay) {
  Subnet subnet = example_subnet();
  const auto answer = answer_subnet_management(subnet, directed({1, 2}, kNodeInfo), kPermissive);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->u8(kMethodAt), kMethodGet | kMethodResponse);
  EXPECT_EQ(answer->get<uint16_t>(kStatusAt), 0x8000);  // the direction bit, and success
  EXPECT_EQ(answer->get<uint64_t>(kTransactionAt), 0x1122334455667788U);
  EXPECT_EQ(answer->u8(192 + 1), Subnet::kOwnPort);  // into the switch
  EXPECT_EQ(answer->u8(192 + 2), 1);                 // into the adapter
}

TEST(SubnetManagement, ReachesNodesByLid) {
  Subnet subnet = example_subnet();
  const Mad asked = request(kClassSubnLid, kMethodGet, kNodeInfo);
  const uint16_t other = subnet.by_guid(kOtherGuid)->lid;
  EXPECT_EQ(answer_subnet_management(subnet, asked, other)->get<uint64_t>(kDataAt + 12), kOtherGuid);
  EXPECT_EQ(answer_subnet_management(subnet, asked, Subnet::kSwitchLid)->get<uint64_t>(kDataAt + 12),
            kSwitchGuid);
  EXPECT_FALSE(answer_subnet_management(subnet, asked, 4711).has_value());
}

TEST(SubnetManagement, SaysOfPortsWhatTheLinkIs) {
  Subnet subnet = example_subnet();
  const auto port = answer_subnet_management(subnet, directed({1, 2}, kPortInfo, 1), kPermissive);
  ASSERT_TRUE(port.has_value());
  EXPECT_EQ(port->get<uint16_t>(kDataAt + 16), subnet.by_guid(kOtherGuid)->lid);
  EXPECT_EQ(port->get<uint16_t>(kDataAt + 18), Subnet::kSwitchLid);
  EXPECT_EQ(port->u8(kDataAt + 32) & 0xf, 4);  // active
  EXPECT_EQ(port->u8(kDataAt + 31), 1);        // 1X
  EXPECT_EQ(port->u8(kDataAt + 35) >> 4, 4);   // at 10 Gb/s
  EXPECT_EQ(port->u8(kDataAt + 36) >> 4, 3);   // path MTU 1024
}

TEST(SubnetManagement, ShowsALinkThatIsDown) {
  Subnet subnet = example_subnet();
  Adapter other = adapter(kOtherGuid);
  other.up = false;
  subnet.hear(other, ipv4(2), at_second(1));
  const auto port = answer_subnet_management(subnet, directed({1}, kPortInfo, 2), kPermissive);
  EXPECT_EQ(port->u8(kDataAt + 32) & 0xf, 1);
  EXPECT_FALSE(answer_subnet_management(subnet, directed({1, 2}, kNodeInfo), kPermissive).has_value());
}

TEST(SubnetManagement, ForwardsEachLidToThePortOfItsAdapter) {
  Subnet subnet = example_subnet();
  const Member& other = *subnet.by_guid(kOtherGuid);
  const auto block =
      answer_subnet_management(subnet, directed({1}, kLinearForwarding, other.lid / 64u), kPermissive);
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->u8(kDataAt + other.lid % 64), other.switch_port);
  EXPECT_EQ(status_of(*answer_subnet_management(subnet, directed({1}, kLinearForwarding, 768), kPermissive)),
            MadStatus::kInvalidValue);
}

TEST(SubnetManagement, LetsNobodySetAnything) {
  Subnet subnet = example_subnet();
  Mad set = directed({}, kPortInfo);
  set.set_u8(kMethodAt, kMethodSet);
  const auto answer = answer_subnet_management(subnet, set, kPermissive);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(status_of(*answer), MadStatus::kUnsupportedAttribute);
}

TEST(SubnetManagement, RefusesWhatItDoesNotKnow) {
  Subnet subnet = example_subnet();
  const auto status = [&](const Mad& mad) {
    return status_of(*answer_subnet_management(subnet, mad, 0xffff));
  };
  EXPECT_EQ(status(directed({}, 0x7777)), MadStatus::kUnsupportedAttribute);
  EXPECT_EQ(status(directed({}, kSwitchInfo)),
            MadStatus::kUnsupportedAttribute);  // not an attribute of an adapter
  EXPECT_EQ(status(directed({}, kPortInfo, 2)), MadStatus::kInvalidValue);
  Mad version = directed({}, kNodeInfo);
  version.set_u8(kClassVersionAt, 9);
  EXPECT_EQ(status(version), MadStatus::kBadVersion);
  Mad answer = directed({}, kNodeInfo);
  answer.set_u8(kMethodAt, kMethodGet | kMethodResponse);
  EXPECT_FALSE(answer_subnet_management(subnet, answer, kPermissive).has_value());
}

TEST(SubnetManagement, ShowsThatTheManagerLives) {
  Subnet subnet = example_subnet();
  const auto activity = [&] {
    return answer_subnet_management(subnet, request(kClassSubnLid, kMethodGet, kSmInfo), Subnet::kSwitchLid)
        ->get<uint32_t>(kDataAt + 16);
  };
  const uint32_t first = activity();
  EXPECT_GT(activity(), first);
}

}  // namespace
}  // namespace verbena::mad
