// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "management/mad/example_subnet.h"
#include "management/mad/subnet_management.h"

namespace verbena::mad {
namespace {

constexpr uint16_t kNodeRecord = 0x0011;
constexpr size_t kMaskAt = 48;
constexpr size_t kOffsetAt = 44;

std::vector<std::byte> ask(const Mad& asked) {
  return *answer_administration(example_subnet(), asked);
}
MadStatus status_of(const std::vector<std::byte>& answer) {
  return static_cast<MadStatus>(load_be<uint16_t>(&answer[kStatusAt]));
}
size_t records_in(const std::vector<std::byte>& table) {
  const size_t stride = load_be<uint16_t>(&table[kOffsetAt]) * size_t{8};
  return (table.size() - kAdministrationDataAt) / stride;
}

Mad query(uint8_t method, uint16_t attribute, uint64_t mask = 0) {
  Mad mad = request(kClassSubnAdministration, method, attribute);
  mad.set(kMaskAt, mask);
  return mad;
}

void put_gid(Mad& mad, size_t at, uint64_t guid) {
  const roce::Address gid = default_gid(guid);
  std::memcpy(mad.at(kAdministrationDataAt + at), gid.bytes.data(), gid.bytes.size());
}

TEST(Administration, ListsNodesAsOneMessage) {
  const auto table = ask(query(kMethodGetTable, kNodeRecord));
  EXPECT_EQ(status_of(table), MadStatus::kSuccess);
  EXPECT_EQ(static_cast<uint8_t>(table[kMethodAt]), kMethodGetTable | kMethodResponse);
  EXPECT_EQ(records_in(table), 3U);  // the switch and two adapters
  EXPECT_EQ(load_be<uint32_t>(&table[32]), 20 + 3 * 112U);
}

TEST(Administration, FindsRecordsByTheirComponents) {
  Mad asked = query(kMethodGetTable, kNodeRecord, 1u << 7);  // the node's GUID
  asked.set(kAdministrationDataAt + 16, kOtherGuid);
  const auto table = ask(asked);
  ASSERT_EQ(records_in(table), 1U);
  EXPECT_EQ(load_be<uint64_t>(&table[kAdministrationDataAt + 16]), kOtherGuid);
}

TEST(Administration, GivesAnEmptyTableWhereNothingMatches) {
  Mad asked = query(kMethodGetTable, kNodeRecord, 1);
  asked.set(kAdministrationDataAt, uint16_t{4711});
  const auto table = ask(asked);
  EXPECT_EQ(status_of(table), MadStatus::kSuccess);
  EXPECT_EQ(table.size(), kAdministrationDataAt);
}

TEST(Administration, GetWantsExactlyOne) {
  EXPECT_EQ(status_of(ask(query(kMethodGet, kNodeRecord))), MadStatus::kTooManyRecords);
  Mad none = query(kMethodGet, kNodeRecord, 1);
  none.set(kAdministrationDataAt, uint16_t{4711});
  EXPECT_EQ(status_of(ask(none)), MadStatus::kNoRecords);
  Mad one = query(kMethodGet, kNodeRecord, 1);
  one.set(kAdministrationDataAt, Subnet::kSwitchLid);
  const auto answer = ask(one);
  EXPECT_EQ(status_of(answer), MadStatus::kSuccess);
  EXPECT_EQ(answer.size(), kMadBytes);
}

TEST(Administration, FindsThePathToAGuid) {
  const Subnet subnet = example_subnet();
  Mad asked = query(kMethodGet, kPathRecord, 1u << 2 | 1u << 3);
  put_gid(asked, 8, kOtherGuid);
  put_gid(asked, 24, kOwnGuid);
  EXPECT_EQ(wanted_destination(asked), default_gid(kOtherGuid));
  const auto answer = *answer_administration(subnet, asked);
  ASSERT_EQ(status_of(answer), MadStatus::kSuccess);
  EXPECT_EQ(load_be<uint16_t>(&answer[kAdministrationDataAt + 40]), subnet.by_guid(kOtherGuid)->lid);
  EXPECT_EQ(load_be<uint16_t>(&answer[kAdministrationDataAt + 42]), subnet.own().lid);
}

TEST(Administration, FindsPathsByTheLeastMtu) {
  Mad asked = query(kMethodGetTable, kPathRecord, 1u << 16 | 1u << 17);
  asked.set_u8(kAdministrationDataAt + 54, 0 << 6 | 3);  // more than 1024
  EXPECT_EQ(records_in(ask(asked)), 1U);                 // the switch to itself
  asked.set_u8(kAdministrationDataAt + 54, 2 << 6 | 3);  // exactly
  EXPECT_EQ(records_in(ask(asked)), 8U);
}

TEST(Administration, FindsTheManagerByItsCapability) {
  Mad asked = query(kMethodGetTable, kPortInfoRecord, 1u << 7);
  asked.set(kModifierAt, 1u << 31);
  asked.set(kAdministrationDataAt + kCapabilitiesInPortInfoRecord, uint32_t{1u << 1});
  const auto table = ask(asked);
  ASSERT_EQ(records_in(table), 1U);
  EXPECT_EQ(load_be<uint16_t>(&table[kAdministrationDataAt]), Subnet::kSwitchLid);
}

TEST(Administration, IsBounded) {
  Subnet subnet(adapter(kOwnGuid));
  for (uint64_t i = 0; i < Subnet::kMaxMembers; ++i) subnet.hear(adapter(0x100 + i), ipv4(2), at_second(0));
  const auto paths = *answer_administration(subnet, query(kMethodGetTable, kPathRecord));
  EXPECT_EQ(status_of(paths), MadStatus::kNoResources);
  EXPECT_EQ(paths.size(), kMadBytes);
  const auto nodes = *answer_administration(subnet, query(kMethodGetTable, kNodeRecord));
  EXPECT_EQ(records_in(nodes), Subnet::kMaxMembers + 1);
}

TEST(Administration, RefusesWhatItDoesNotServe) {
  EXPECT_EQ(status_of(ask(query(kMethodSet, kNodeRecord))), MadStatus::kUnsupportedMethod);
  EXPECT_EQ(status_of(ask(query(kMethodGetTable, 0x0038))), MadStatus::kUnsupportedAttribute);
  Mad version = query(kMethodGet, kNodeRecord);
  version.set_u8(kClassVersionAt, 1);
  EXPECT_EQ(status_of(ask(version)), MadStatus::kBadVersion);
}

}  // namespace
}  // namespace verbena::mad
