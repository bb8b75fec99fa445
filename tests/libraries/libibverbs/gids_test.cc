// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/opened_device.h"

namespace verbena::fake {
namespace {

using verbs::GidSysfsType;
using Gids = OpenedDevice;

TEST_F(Gids, AnEmptyIndexIsAZeroGid) {
  ibv_gid gid;
  std::memset(&gid, 0xff, sizeof gid);
  ASSERT_EQ(ibv_query_gid(context_, 1, 5, &gid), 0);
  const ibv_gid zero{};
  EXPECT_EQ(std::memcmp(&gid, &zero, sizeof gid), 0);
}

TEST_F(Gids, AnIndexBeyondTheTableIsAnError) {
  ibv_gid gid;
  errno = 0;
  EXPECT_EQ(ibv_query_gid(context_, 1, 16, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_query_gid(context_, 2, 0, &gid), -1);
}

TEST_F(Gids, TypesAreThoseOfSysfs) {
  fake().gids[2] = gid_entry(2, "fe80::1", IBV_GID_TYPE_ROCE_V1);
  auto type = static_cast<GidSysfsType>(99);
  ASSERT_EQ(ibv_query_gid_type(context_, 1, 0, &type), 0);
  EXPECT_EQ(type, GidSysfsType::kRoceV2);
  ASSERT_EQ(ibv_query_gid_type(context_, 1, 2, &type), 0);
  EXPECT_EQ(type, GidSysfsType::kIbOrRoceV1);
  type = GidSysfsType::kRoceV2;
  ASSERT_EQ(ibv_query_gid_type(context_, 1, 5, &type), 0) << "an empty index has a type too";
  EXPECT_EQ(type, GidSysfsType::kIbOrRoceV1);
  EXPECT_EQ(ibv_query_gid_type(context_, 1, 16, &type), -1);
}

TEST_F(Gids, AnEntryIsReadWhole) {
  ibv_gid_entry entry{};
  ASSERT_EQ(ibv_query_gid_ex(context_, 1, 1, &entry, 0), 0);
  EXPECT_EQ(entry.gid_index, 1U);
  EXPECT_EQ(entry.port_num, 1U);
  EXPECT_EQ(entry.gid_type, uint32_t{IBV_GID_TYPE_ROCE_V2});
  EXPECT_EQ(entry.ndev_ifindex, 7U);
  EXPECT_EQ(entry.gid.raw[12], 10);
}

TEST_F(Gids, AnEntryQueryTellsWhatIsWrong) {
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(context_, 1, 5, &entry, 0), ENODATA);
  EXPECT_EQ(ibv_query_gid_ex(context_, 1, 16, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(context_, 3, 0, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(context_, 257, 0, &entry, 0), EINVAL) << "257 is not port 1";
  EXPECT_EQ(ibv_query_gid_ex(context_, 1, 0, &entry, 1), EINVAL) << "no flag is known";
  EXPECT_EQ(_ibv_query_gid_ex(context_, 1, 0, &entry, 0, sizeof entry - 4), EINVAL);
}

TEST_F(Gids, ALongerEntryIsClearedBeyondOurs) {
  unsigned char bytes[sizeof(ibv_gid_entry) + 8];
  std::memset(bytes, 0xab, sizeof bytes);
  auto* entry = reinterpret_cast<ibv_gid_entry*>(bytes);
  ASSERT_EQ(_ibv_query_gid_ex(context_, 1, 0, entry, 0, sizeof bytes), 0);
  EXPECT_EQ(entry->gid.raw[0], 0xfe);
  EXPECT_EQ(bytes[sizeof bytes - 1], 0);
}

TEST_F(Gids, TheTableHasNoHoles) {
  fake().gids[9] = gid_entry(9, "2001:db8::9");
  std::vector<ibv_gid_entry> table(16);
  ASSERT_EQ(ibv_query_gid_table(context_, table.data(), table.size(), 0), 3);
  EXPECT_EQ(table[2].gid_index, 9U);
  EXPECT_EQ(table[2].gid.raw[15], 9);
}

TEST_F(Gids, TheTableIsGivenWholeOrNotAtAll) {
  std::vector<ibv_gid_entry> table(2);
  EXPECT_EQ(ibv_query_gid_table(context_, table.data(), 2, 0), 2);
  EXPECT_EQ(ibv_query_gid_table(context_, table.data(), 1, 0), -EINVAL);
  EXPECT_EQ(ibv_query_gid_table(context_, table.data(), 0, 0), -EINVAL);
  EXPECT_EQ(ibv_query_gid_table(context_, table.data(), 2, 1), -EINVAL);
}

TEST_F(Gids, TableEntriesMayBeOfAnySize) {
  constexpr size_t kLonger = sizeof(ibv_gid_entry) + 8;
  unsigned char bytes[2 * kLonger];
  std::memset(bytes, 0xab, sizeof bytes);
  ASSERT_EQ(_ibv_query_gid_table(context_, reinterpret_cast<ibv_gid_entry*>(bytes), 2, 0, kLonger), 2);
  EXPECT_EQ(bytes[sizeof(ibv_gid_entry)], 0);
  ibv_gid_entry second;
  std::memcpy(&second, bytes + kLonger, sizeof second);
  EXPECT_EQ(second.gid_index, 1U);
  std::memset(bytes, 0xab, sizeof bytes);
  constexpr size_t kShorter = sizeof(ibv_gid);
  ASSERT_EQ(_ibv_query_gid_table(context_, reinterpret_cast<ibv_gid_entry*>(bytes), 2, 0, kShorter), 2);
  EXPECT_EQ(bytes[0], 0xfe);
  EXPECT_EQ(bytes[kShorter + 12], 10);
  EXPECT_EQ(bytes[2 * kShorter], 0xab);
}

TEST_F(Gids, ResolutionAnswersNegativeErrno) {
  ibv_ah_attr attr{};
  uint8_t mac[6];
  uint16_t vlan;
  EXPECT_EQ(ibv_resolve_eth_l2_from_gid(context_, &attr, mac, &vlan), -EOPNOTSUPP);
}

}  // namespace
}  // namespace verbena::fake
