// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "agent/cm/ledger.h"

namespace verbena::agent {
namespace {

constexpr TimePoint kNow{std::chrono::hours(1)};
constexpr TimePoint kUntil = kNow + std::chrono::seconds(30);
constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;
constexpr uint16_t kPort = 7471;

CmAddress address(uint8_t last, uint16_t port = kPort) {
  CmAddress result{};
  result.family = AF_INET;
  result.port = htons(port);
  if (last == 0) return result;
  result.address[0] = 10;
  result.address[3] = last;
  return result;
}

LedgerEntry port_of_user(const CmAddress& source, uid_t user = kUser, const CmAddress& destination = {}) {
  LedgerEntry entry;
  entry.kind = LedgerEntry::kPort;
  entry.user = user;
  entry.port_space = RDMA_PS_TCP;
  entry.source = source;
  entry.destination = destination;
  return entry;
}

cm::ConnectionInfo connection(uint32_t local_id) {
  cm::ConnectionInfo info;
  info.local_id = local_id;
  info.remote_id = 70;
  info.local_qpn = 0x4001;
  info.path.destination.bytes[15] = 9;
  return info;
}

LedgerEntry connection_of_user(uint32_t local_id, uid_t user = kUser) {
  const cm::ConnectionInfo info = connection(local_id);
  LedgerEntry entry;
  entry.kind = LedgerEntry::kConnection;
  entry.user = user;
  entry.local_id = info.local_id;
  entry.remote_id = info.remote_id;
  entry.local_qpn = info.local_qpn;
  std::ranges::copy(info.path.destination.bytes, entry.peer);
  return entry;
}

class ClaimsTest : public ::testing::Test {
 protected:
  // Returns 0 if the user gets the port, else the errno value.
  int bind(PortBinding& to, uid_t user) {
    claims.yield_port(RDMA_PS_TCP, to, user);
    const auto bound = spaces[RDMA_PS_TCP].bind(to);
    return bound ? 0 : bound.error().code;
  }
  bool take(cm::ConnectionInfo what, uid_t user = kUser, TimePoint now = kNow, bool is_awaited = false) {
    return claims.take_connection(what, user, is_awaited, now);
  }

  Claims::Spaces spaces{{RDMA_PS_TCP, PortSpace()}};
  Ledger ledger{[] {}};
  Claims claims{spaces, ledger};
};

TEST_F(ClaimsTest, KeepAPortForTheUserWhoHeldIt) {
  const LedgerEntry entries[] = {port_of_user(address(0))};
  claims.take_over(entries, kUntil);
  PortBinding thiefs{address(0)};
  EXPECT_NE(bind(thiefs, kOther), 0);
  PortBinding narrower{address(1)};
  EXPECT_NE(bind(narrower, kOther), 0);
  PortBinding owners{address(0)};
  EXPECT_EQ(bind(owners, kUser), 0);
}

TEST_F(ClaimsTest, KeepAPortNoLongerThanForAWhile) {
  const LedgerEntry entries[] = {port_of_user(address(0))};
  claims.take_over(entries, kUntil);
  EXPECT_FALSE(claims.end([](uint32_t) { return false; }));
  PortBinding another{address(0)};
  EXPECT_EQ(bind(another, kOther), 0);
}

TEST_F(ClaimsTest, LeaveOtherAddressesOfThePortAlone) {
  const LedgerEntry entries[] = {port_of_user(address(1))};
  claims.take_over(entries, kUntil);
  PortBinding another{address(2)};
  EXPECT_EQ(bind(another, kOther), 0);
}

// Connections to two destinations may share a local port.
TEST_F(ClaimsTest, OfOnePortAreGivenBackOneByOne) {
  const LedgerEntry entries[] = {port_of_user(address(1), kUser, address(7, 1)),
                                 port_of_user(address(1), kUser, address(8, 1))};
  claims.take_over(entries, kUntil);
  PortBinding first{address(1), address(7, 1)};
  EXPECT_TRUE(claims.yield_port(RDMA_PS_TCP, first, kUser));
  EXPECT_TRUE(spaces[RDMA_PS_TCP].resume(first));
  PortBinding thiefs{address(1), address(8, 1)};
  EXPECT_FALSE(claims.yield_port(RDMA_PS_TCP, thiefs, kOther));
  EXPECT_FALSE(spaces[RDMA_PS_TCP].resume(thiefs)) << "of the second";
  PortBinding second{address(1), address(8, 1)};
  claims.yield_port(RDMA_PS_TCP, second, kUser);
  EXPECT_TRUE(spaces[RDMA_PS_TCP].resume(second));
}

TEST_F(ClaimsTest, BelieveAConnectionThatWasThereOnceAndOfItsUser) {
  const LedgerEntry entries[] = {connection_of_user(5)};
  claims.take_over(entries, kUntil);
  EXPECT_FALSE(take(connection(6)));
  EXPECT_FALSE(take(connection(5), kOther));
  cm::ConnectionInfo of_another_peer = connection(5);
  of_another_peer.path.destination.bytes[15] = 8;
  EXPECT_FALSE(take(of_another_peer));
  cm::ConnectionInfo of_another_qp = connection(5);
  of_another_qp.local_qpn = 0x4002;
  EXPECT_FALSE(take(of_another_qp));
  EXPECT_FALSE(take(connection(5), kUser, kUntil)) << "too late";
  EXPECT_TRUE(take(connection(5)));
  EXPECT_FALSE(take(connection(5))) << "twice";
}

TEST_F(ClaimsTest, SayWhetherThePeerOfAConnectionSpeaksFromTheRocePort) {
  LedgerEntry entries[] = {connection_of_user(5), connection_of_user(6)};
  entries[0].flags = LedgerEntry::kPeerHasRocePort;
  claims.take_over(entries, kUntil);
  cm::ConnectionInfo first = connection(5);
  cm::ConnectionInfo second = connection(6);
  second.peer_has_roce_port = true;
  ASSERT_TRUE(claims.take_connection(first, kUser, false, kNow));
  ASSERT_TRUE(claims.take_connection(second, kUser, false, kNow));
  EXPECT_TRUE(first.peer_has_roce_port);
  EXPECT_FALSE(second.peer_has_roce_port);
}

TEST_F(ClaimsTest, BelieveNothingWhereThereWasNoAgentBefore) {
  EXPECT_FALSE(take(connection(5)));
}

TEST_F(ClaimsTest, BelieveAProcessForLongerThatLivesAndHasNotComeBack) {
  const LedgerEntry entries[] = {connection_of_user(5), connection_of_user(6)};
  claims.take_over(entries, kUntil);
  EXPECT_TRUE(claims.end([](uint32_t) { return true; }));
  EXPECT_TRUE(take(connection(5), kUser, kUntil, true));
  EXPECT_FALSE(claims.end([](uint32_t) { return false; }));
  EXPECT_FALSE(take(connection(6), kUser, kUntil, true));
}

TEST_F(ClaimsTest, AreBoundedWhereTheFormerAgentKeptNoLedger) {
  claims.take_over_without_ledger(kUntil);
  size_t believed = 0;
  for (uint32_t id = 1; id < 40000; ++id) believed += take(connection(id));
  EXPECT_EQ(believed, Claims::kMaxWithoutLedger);
  EXPECT_TRUE(take(connection(1), kOther)) << "another user's are others";
}

TEST_F(ClaimsTest, HoldWithTheAgentAfterTheNext) {
  const LedgerEntry entries[] = {port_of_user(address(0)), connection_of_user(5)};
  claims.take_over(entries, kUntil);
  const auto next = Ledger::read(ledger.fd());
  ASSERT_EQ(next.size(), 2u);
  EXPECT_TRUE(take(connection(5)));
  EXPECT_EQ(Ledger::read(ledger.fd()).size(), 1u);
}

TEST(Ledger, HasWhatWasEnteredAndNotRemoved) {
  Ledger ledger([] {});
  const Ledger::Number first = ledger.add(connection_of_user(5));
  const Ledger::Number second = ledger.add(connection_of_user(6));
  ASSERT_TRUE(first != 0 && second != 0 && first != second);
  ledger.remove(first);
  LedgerEntry changed = connection_of_user(7);
  ledger.change(second, changed);
  auto entries = Ledger::read(ledger.fd());
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].local_id, 7u);
  EXPECT_EQ(ledger.add(connection_of_user(8)), first) << "the place is used again";
  ledger.freeze();
  ledger.remove(first);
  EXPECT_EQ(Ledger::read(ledger.fd()).size(), 2u) << "it is the next agent's";
}

TEST(Ledger, IsNotFilledByOneUser) {
  Ledger ledger([] {});
  while (ledger.add(connection_of_user(5, ::geteuid() + 1)) != 0) continue;
  EXPECT_NE(ledger.add(connection_of_user(6, ::geteuid() + 2)), 0u);
  EXPECT_NE(ledger.add(connection_of_user(7, ::geteuid())), 0u);
}

TEST(Ledger, SaysWhenOtherUsersAreInIt) {
  int said = 0;
  Ledger ledger([&] { ++said; });
  ledger.add(connection_of_user(5, ::geteuid()));
  EXPECT_EQ(said, 0);
  const auto one = ledger.add(connection_of_user(6, ::geteuid() + 1));
  const auto two = ledger.add(connection_of_user(7, ::geteuid() + 1));
  EXPECT_EQ(said, 1);
  ledger.remove(one);
  ledger.remove(two);
  EXPECT_EQ(said, 2);
  EXPECT_FALSE(ledger.has_others());
}

TEST(Ledger, IsReadOfAnyFileWithoutHarm) {
  EXPECT_TRUE(Ledger::read(-1).empty());
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(Ledger::read(null.get()).empty());
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd out(ends[0]);
  const UniqueFd in(ends[1]);
  EXPECT_TRUE(Ledger::read(out.get()).empty());
}

}  // namespace
}  // namespace verbena::agent
