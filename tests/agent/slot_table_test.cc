// SPDX-License-Identifier: Apache-2.0
#include "agent/slot_table.h"

#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "agent/network_namespace.h"
#include "agent/slot_packets.h"
#include "agent/vault.h"
#include "agent/wire.h"

namespace verbena::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TimePoint kStart{std::chrono::hours(1)};

Borrower borrower(uint64_t session, uid_t uid = 1000) {
  Borrower borrower;
  borrower.session = session;
  borrower.uid = uid;
  borrower.pid = 42;
  borrower.program = "test";
  return borrower;
}

class SlotTableTest : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (!IsSkipped()) wire_.open();
  }
  Wire wire_{roce::kUdpPort};
  SlotTable slots_{wire_};
};

TEST_F(SlotTableTest, LendsTheLongestFreeSlotThatHasRested) {
  for (uint32_t index = 1; index <= 3; ++index) EXPECT_EQ(slots_.lend(borrower(1), kStart)->index, index);
  ASSERT_TRUE(slots_.take_back(2, 1, kStart + std::chrono::seconds(1)));
  ASSERT_TRUE(slots_.take_back(1, 1, kStart + std::chrono::seconds(2)));
  EXPECT_EQ(slots_.lend(borrower(1), kStart + std::chrono::seconds(2))->index, 4u);
  EXPECT_EQ(slots_.lend(borrower(1), kStart + std::chrono::seconds(5))->index, 2u);
  EXPECT_EQ(slots_.lend(borrower(1), kStart + std::chrono::seconds(5))->index, 1u);
}

TEST_F(SlotTableTest, NeverLendsOneUsersSocketToAnother) {
  EXPECT_EQ(slots_.lend(borrower(1, 1000), kStart)->index, 1u);
  ASSERT_TRUE(slots_.take_back(1, 1, kStart));
  EXPECT_EQ(slots_.lend(borrower(2, 1001), kStart + std::chrono::hours(1))->index, 2u);
  EXPECT_EQ(slots_.lend(borrower(3, 1000), kStart + std::chrono::hours(1))->index, 1u);
}

TEST_F(SlotTableTest, LendsASocketWithoutWhatCameForItsLastOwner) {
  agent_client::Slot slot;
  slot.socket = UniqueFd(::dup(slots_.lend(borrower(1), kStart)->socket));
  ASSERT_TRUE(test::send_to_slot(1, 10));
  EXPECT_THAT(test::received_tags(slot), ElementsAre(10u));
  ASSERT_TRUE(test::send_to_slot(1, 11));
  ASSERT_TRUE(slots_.take_back(1, 1, kStart));
  ASSERT_TRUE(test::send_to_slot(1, 12));
  EXPECT_THAT(test::received_tags(slot), IsEmpty());
  ASSERT_EQ(slots_.lend(borrower(2), kStart + std::chrono::hours(1))->index, 1u);
  EXPECT_THAT(test::received_tags(slot), IsEmpty());
  ASSERT_TRUE(test::send_to_slot(1, 13));
  EXPECT_THAT(test::received_tags(slot), ElementsAre(13u));
}

TEST_F(SlotTableTest, TakesASlotBackOnlyFromItsBorrower) {
  ASSERT_TRUE(slots_.lend(borrower(1), kStart));
  EXPECT_EQ(slots_.take_back(1, 2, kStart).error().code, ENOENT);
  EXPECT_EQ(slots_.take_back(2, 1, kStart).error().code, ENOENT);
  EXPECT_TRUE(slots_.take_back(1, 1, kStart));
  EXPECT_EQ(slots_.take_back(1, 1, kStart).error().code, ENOENT);
}

TEST_F(SlotTableTest, RunsOutAtTheMulticastSlotAndThenUsesWhatHasNotRested) {
  uint32_t last = 0;
  for (uint32_t i = 1; i < roce::Qpn::kSlots - 1; ++i) {
    const auto slot = slots_.lend(borrower(1), kStart);
    if (!slot) GTEST_SKIP() << "not enough descriptors here";
    last = slot->index;
  }
  EXPECT_EQ(last, roce::Qpn::kSlots - 2);
  EXPECT_EQ(slots_.lend(borrower(1), kStart).error().code, ENOSPC);
  ASSERT_TRUE(slots_.take_back(500, 1, kStart));
  EXPECT_EQ(slots_.lend(borrower(1), kStart)->index, 500u);
}

TEST_F(SlotTableTest, NumbersSlotsWithoutAWireFromTheTop) {
  Wire none(roce::kUdpPort);  // was never opened
  SlotTable slots(none);
  const auto slot = slots.lend(borrower(1), kStart);
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot->index, roce::Qpn::kSlots - 2);
  EXPECT_EQ(slot->socket, -1);
  EXPECT_EQ(slots.lend(borrower(1), kStart)->index, roce::Qpn::kSlots - 3);
}

uint64_t cookie_of(int socket) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  EXPECT_EQ(::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &length), 0);
  return cookie;
}

TEST_F(SlotTableTest, ComesOutOfTheVaultAsItWentIn) {
  auto vault = Vault::create();
  ASSERT_TRUE(vault);
  ASSERT_TRUE(vault->rewrite(slots_.records(), -1));
  // Often enough that the vault has to be written again several times.
  TimePoint now = kStart;
  for (int i = 0; i < 300; ++i) {
    now += std::chrono::seconds(1);
    const auto slot = slots_.lend(borrower(1), now);
    ASSERT_TRUE(slot);
    ASSERT_TRUE(vault->put_slot(slots_.record(slot->index)));
    if (i % 3 != 0) {
      ASSERT_TRUE(slots_.take_back(slot->index, 1, now));
      ASSERT_TRUE(vault->put_slot(slots_.record(slot->index)));
    }
    if (!vault->is_long()) continue;
    ASSERT_TRUE(vault->rewrite(slots_.records(), -1));
  }
  const auto expected = slots_.records();
  std::vector<uint64_t> cookies;
  for (const SlotRecord& slot : expected) cookies.push_back(cookie_of(slot.socket));

  Vault::Contents contents = Vault::take(vault->client_end());
  ASSERT_EQ(contents.slots.size(), expected.size());
  Wire wire(roce::kUdpPort);
  SlotTable after(wire);
  ASSERT_TRUE(after.adopt(contents, now));
  ASSERT_EQ(wire.size(), wire_.size());
  const auto records = after.records();
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].index, expected[i].index);
    EXPECT_EQ(records[i].lent, expected[i].lent);
    EXPECT_EQ(records[i].uid, expected[i].uid);
    EXPECT_EQ(cookie_of(records[i].socket), cookies[i]);
  }
}

TEST_F(SlotTableTest, GivesAKeptSlotOnlyToTheUserWhoHadIt) {
  auto vault = Vault::create();
  ASSERT_TRUE(vault);
  ASSERT_TRUE(slots_.lend(borrower(1, 1000), kStart));
  ASSERT_TRUE(vault->rewrite(slots_.records(), -1));
  Vault::Contents contents = Vault::take(vault->client_end());
  Wire wire(roce::kUdpPort);
  SlotTable after(wire);
  ASSERT_TRUE(after.adopt(contents, kStart));
  EXPECT_EQ(after.keep(1, borrower(7, 1001)).error().code, ENOENT);
  EXPECT_EQ(after.keep(2, borrower(7, 1000)).error().code, ENOENT);
  EXPECT_TRUE(after.keep(1, borrower(7, 1000)));
  EXPECT_EQ(after.keep(1, borrower(8, 1000)).error().code, ENOENT);
}

TEST_F(SlotTableTest, RefusesAVaultThatLacksASocket) {
  auto vault = Vault::create();
  ASSERT_TRUE(vault);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(slots_.lend(borrower(1), kStart));
  auto records = slots_.records();
  records.erase(records.begin() + 1);
  ASSERT_TRUE(vault->rewrite(records, -1));
  Vault::Contents contents = Vault::take(vault->client_end());
  Wire wire(roce::kUdpPort);
  SlotTable after(wire);
  EXPECT_FALSE(after.adopt(contents, kStart));
  EXPECT_FALSE(wire.has_sockets());
}

TEST_F(SlotTableTest, RefusesSocketsThatAreNotTheGroups) {
  Wire wire(roce::kUdpPort);
  const auto refused = [&](int fd) {
    std::vector<UniqueFd> sockets;
    sockets.emplace_back(fd);
    return !wire.adopt(std::move(sockets));
  };
  EXPECT_TRUE(refused(::socket(AF_INET, SOCK_DGRAM, 0)));
  EXPECT_TRUE(refused(::socket(AF_UNIX, SOCK_DGRAM, 0)));
  EXPECT_TRUE(refused(::socket(AF_INET, SOCK_STREAM, 0)));
  EXPECT_TRUE(refused(::open("/dev/null", O_RDONLY)));
  std::vector<UniqueFd> twice;
  twice.emplace_back(::dup(wire_.socket(0)));
  twice.emplace_back(::dup(wire_.socket(0)));
  EXPECT_FALSE(wire.adopt(std::move(twice)));
}

TEST(Vault, IgnoresWhatIsNoVault) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const UniqueFd in(ends[0]);
  const UniqueFd out(ends[1]);
  for (size_t length : {1u, 8u, 9u, 96u, 500u}) {
    const std::vector<char> garbage(length, 'v');
    ASSERT_EQ(::send(in.get(), garbage.data(), length, 0), static_cast<ssize_t>(length));
  }
  EXPECT_TRUE(Vault::take(out.get()).slots.empty());
  const UniqueFd null(::open("/dev/null", O_RDONLY));
  EXPECT_TRUE(Vault::take(null.get()).slots.empty());
}

}  // namespace
}  // namespace verbena::agent
