// SPDX-License-Identifier: Apache-2.0
// Identifiers of a program that has ended are destroyed in slices. No other program notices.
#include <cerrno>

#include <gtest/gtest.h>

#include "agent/cm/cleanup.h"
#include "agent/cm/in_process.h"
#include "agent/cm/service.h"

namespace verbena::agent {
namespace {

constexpr uid_t kUser = 4242;
constexpr uid_t kOtherUser = 4243;
constexpr uint16_t kPort = 7471;

class GoneClientsTest : public CmInProcess {
 protected:
  Program program(uid_t user = kUser) { return CmInProcess::program(user); }
  size_t left(uid_t user = kUser) { return service_.shares().identifiers.of(user); }
  bool is_clear() { return service_.gone_clients().empty(); }
};

TEST_F(GoneClientsTest, ClearsAwayWhatAProgramLeavesLittleByLittle) {
  Program large = program();
  large.create_many(GoneClients::kAtOnce * 4);
  large.end();
  EXPECT_EQ(status_of(service_).identifiers, 0u) << "nobody sees them any more";
  EXPECT_TRUE(service_.owes_farewells()) << "the agent must not end yet";
  size_t rounds = 0;
  for (size_t before = left(); !is_clear(); before = left(), ++rounds) {
    loop_.run_round();
    EXPECT_LE(before - left(), GoneClients::kAtOnce);
    ASSERT_LT(rounds, 10u);
  }
  EXPECT_GE(rounds, 3u);
  EXPECT_EQ(left(), 0u);
  EXPECT_FALSE(service_.owes_farewells());
}

TEST_F(GoneClientsTest, OneThatHasLittleIsDoneWithAtOnce) {
  Program small = program();
  small.create_many(GoneClients::kAtOnce / 2);
  small.end();
  EXPECT_TRUE(is_clear());
  EXPECT_EQ(left(), 0u);
}

TEST_F(GoneClientsTest, AllUsersTogetherHaveABoundedNumberOfIdentifiers) {
  Quota& identifiers = service_.shares().identifiers;
  for (uid_t user = kUser + 1; identifiers.of_all() < CmService::Shares::kAll.all / 2; ++user) {
    identifiers.take(user, CmService::Shares::kAll.all / 8);
  }
  Program first = program();
  EXPECT_NE(first.create(), 0u);
  while (identifiers.allows(kUser)) identifiers.take(kUser);
  EXPECT_LT(identifiers.of(kUser), CmService::Shares::kMaxOfUser);
  EXPECT_EQ(first.create(), 0u);
  EXPECT_NE(program(kUser + 100).create(), 0u) << "another user finds some";
  EXPECT_NE(program(0).create(), 0u);
}

// As in the kernel, the reply comes after all identifiers have been destroyed.
TEST_F(GoneClientsTest, WhatGoesWithAnEventChannelIsDestroyedLittleByLittle) {
  Program large = program();
  const uint32_t bound = large.create();
  ASSERT_EQ(large.bind(bound, kPort), 0);
  large.create_many(GoneClients::kAtOnce * 4);
  ASSERT_EQ(large.close(), 0);
  EXPECT_GE(large.slices, 4u);
  EXPECT_EQ(left(), 0u);
  EXPECT_EQ(status_of(service_).identifiers, 0u);
  EXPECT_EQ(large.bind(bound, kPort + 1), ENOENT);
  EXPECT_EQ(large.close(), ENOENT);
  Program other = program(kOtherUser);
  EXPECT_EQ(other.bind(other.create(), kPort), 0);
}

class WaitingEvents : public GoneClientsTest {
 protected:
  static constexpr size_t kMany = GoneClients::kAtOnce * 8;  // more than a socket takes

  WaitingEvents() { add_link(); }
  size_t waiting() { return service_.shares().waiting_events.of(kUser); }
};

// Events of others are no fault of this program: it keeps its session, and its requests are refused.
TEST_F(WaitingEvents, OfOthersThatTakeAllRoomEndNobodysSession) {
  Quota& events = service_.shares().waiting_events;
  uid_t stranger = kUser + 1000;
  for (; !events.is_used_up() && stranger < kUser + 100'000; ++stranger) {
    while (events.allows(stranger)) events.take(stranger);
    if (!events.allows(kUser)) break;
  }
  ASSERT_FALSE(events.allows(kUser));
  Program victim = program();
  victim.join_often(1);
  int joined = 0;
  for (size_t i = 0; i < kMany && joined == 0; ++i) joined = victim.join();
  EXPECT_EQ(joined, ENOMEM);
  EXPECT_EQ(waiting(), 1u) << "what it causes while none waits is kept";
  service_.links_changed({}, {});
  EXPECT_EQ(waiting(), 2u) << "the device's removal is told in any case";
  EXPECT_FALSE(victim.hung_up);
  events.give_back(kUser + 1000, 100);
  EXPECT_NE(victim.create(), 0u);
}

TEST_F(WaitingEvents, OfOneProgramHaveALimit) {
  Program silent = program();
  silent.join_often(1);
  for (size_t i = 0; i < 2 * ClientLimits::kMaxWaitingEvents && !silent.hung_up; ++i) silent.join();
  EXPECT_TRUE(silent.hung_up);
  EXPECT_EQ(waiting(), ClientLimits::kMaxWaitingEvents + 1);
}

TEST_F(WaitingEvents, OfAnIdentifierThatIsDestroyedAreDroppedLittleByLittle) {
  Program silent = program();
  const uint32_t id = silent.join_often(kMany);
  const size_t before = waiting();
  ASSERT_GE(before, GoneClients::kAtOnce * 4);
  EXPECT_EQ(silent.destroy_in_slices(id), 0);
  EXPECT_GE(silent.slices, before / GoneClients::kAtOnce);
  EXPECT_EQ(waiting(), 0u);
  EXPECT_EQ(left(), 0u);
}

TEST_F(WaitingEvents, OfAnIdentifierThatMigratesAreMovedLittleByLittle) {
  Program silent = program();
  const uint32_t id = silent.join_often(2 * kMany);
  EXPECT_EQ(silent.migrate(id, 2), 0);
  EXPECT_GE(silent.slices, kMany / GoneClients::kAtOnce);
  const size_t moved = waiting();
  EXPECT_GT(moved, 0u);
  EXPECT_EQ(silent.close(), 0);
  EXPECT_EQ(waiting(), moved) << "they are in the other channel";
  EXPECT_EQ(left(), 1u);
}

TEST_F(WaitingEvents, OfAChannelThatIsClosedAreDroppedLittleByLittle) {
  Program silent = program();
  silent.join_often(kMany);
  const size_t before = waiting();
  EXPECT_EQ(silent.close(), 0);
  EXPECT_GE(silent.slices, before / GoneClients::kAtOnce);
  EXPECT_EQ(waiting(), 0u);
}

TEST_F(GoneClientsTest, IdentifiersOfOtherEventChannelsStay) {
  Program two = program();
  two.create_many(GoneClients::kAtOnce);
  const uint32_t stays = two.create(2u);
  two.create_many(GoneClients::kAtOnce);
  ASSERT_EQ(two.close(), 0);
  EXPECT_EQ(left(), 1u);
  EXPECT_EQ(two.bind(stays, kPort), 0);
}

TEST_F(GoneClientsTest, AProgramMayEndWhileItsEventChannelIsClosed) {
  Program large = program();
  large.create_many(GoneClients::kAtOnce * 3);
  large.begin_to_close();
  large.end();
  while (!is_clear()) loop_.run_round();
  EXPECT_EQ(left(), 0u);
  EXPECT_EQ(status_of(service_).identifiers, 0u);
}

// A server that is restarted right after its end finds its port free.
TEST_F(GoneClientsTest, APortIsFreeAsSoonAsItsProgramHasEnded) {
  Program server = program();
  for (uint16_t port = kPort; port < kPort + 1000; ++port) ASSERT_EQ(server.bind(server.create(), port), 0);
  Program other = program(kOtherUser);
  EXPECT_EQ(other.bind(other.create(), kPort), EADDRNOTAVAIL);
  server.end();
  ASSERT_FALSE(is_clear()) << "else nothing is tried";
  for (uint16_t port = kPort; port < kPort + 1000; ++port) ASSERT_EQ(other.bind(other.create(), port), 0);
  while (!is_clear()) loop_.run_round();
  Program third = program();
  EXPECT_EQ(third.bind(third.create(), kPort), EADDRNOTAVAIL) << "what was cleared away was not the other's";
}

TEST_F(GoneClientsTest, WhatAUserHasLeftIsNotInTheWayOfItsNextProgram) {
  Program first = program();
  Program second = program();
  first.create_many(ClientLimits::kMaxIdentifiers);
  second.create_many(ClientLimits::kMaxIdentifiers);
  Program third = program();
  EXPECT_EQ(third.create(), 0u) << "the user has all that it may have";
  first.end();
  third.create_many(3 * GoneClients::kAtOnce);
}

// When the agent ends, programs that ended before it leave nothing in the ledger for the next agent.
TEST_F(GoneClientsTest, AnAgentThatEndsClearsAwayTheRest) {
  Program large = program(kOtherUser);
  for (uint16_t port = kPort; port < kPort + 1000; ++port) ASSERT_EQ(large.bind(large.create(), port), 0);
  large.end();
  EXPECT_TRUE(service_.ledger().has_others());
  service_.abandon();
  EXPECT_FALSE(service_.ledger().has_others());
}

}  // namespace
}  // namespace verbena::agent
