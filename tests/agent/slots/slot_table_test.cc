// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/slot_table.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/network_namespace.h"
#include "agent/slots/process.h"
#include "agent/slots/slot_packets.h"
#include "agent/slots/wire.h"
#include "agent/takeover/takeover.h"
#include "agent/takeover/takeover_state.h"
#include "base/lingering_socket.h"
#include "control/protocol/status_page.h"

namespace verbena::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void take_back_all(SlotTable& slots, uint64_t session, TimePoint now) {
  for (const LeasedSlot& slot : slots.leased_to(session)) {
    EXPECT_TRUE(slots.take_back(slot.index, session, now));
  }
}

constexpr TimePoint kStart{std::chrono::hours(1)};
constexpr uid_t kOwn = 500;

Lessee lessee(uint64_t session, uid_t uid = 1000) {
  Lessee lessee;
  lessee.session = session;
  lessee.uid = uid;
  lessee.pid = 42;
  lessee.program = "test";
  return lessee;
}

// A borrower whose process does not get the socket itself.
Lessee without_socket(uint64_t session, uid_t uid) {
  Lessee one = lessee(session, uid);
  one.shares_port = false;
  return one;
}

class SlotTableTest : public test::NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    if (!IsSkipped()) wire_.open();
  }
  Wire wire_{roce::kUdpPort};
  SlotTable slots_{wire_, kOwn};
};

// To close it may take as long as the slot's user likes.
TEST_F(SlotTableTest, HasAPageOpenForReadersOnceUntilItsLeaseEnds) {
  const auto slot = slots_.lease(lessee(1), kStart);
  ASSERT_TRUE(slot);
  const auto page = slots_.read_only_page(slot->index);
  ASSERT_TRUE(page);
  EXPECT_EQ(::fcntl(*page, F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(slots_.read_only_page(slot->index), page);
  ASSERT_TRUE(slots_.take_back(slot->index, 1, kStart));
  EXPECT_EQ(slots_.read_only_page(slot->index).error().code, ENOENT);
}

TEST_F(SlotTableTest, LendsTheLongestFreeSlotThatHasRested) {
  for (uint32_t index = 1; index <= 3; ++index) EXPECT_EQ(slots_.lease(lessee(1), kStart)->index, index);
  ASSERT_TRUE(slots_.take_back(2, 1, kStart + std::chrono::seconds(1)));
  ASSERT_TRUE(slots_.take_back(1, 1, kStart + std::chrono::seconds(2)));
  EXPECT_EQ(slots_.lease(lessee(1), kStart + std::chrono::seconds(2))->index, 4u);
  EXPECT_EQ(slots_.lease(lessee(1), kStart + std::chrono::seconds(5))->index, 2u);
  EXPECT_EQ(slots_.lease(lessee(1), kStart + std::chrono::seconds(5))->index, 1u);
}

TEST_F(SlotTableTest, NeverLendsOneUsersSocketToAnother) {
  EXPECT_EQ(slots_.lease(lessee(1, 1000), kStart)->index, 1u);
  ASSERT_TRUE(slots_.take_back(1, 1, kStart));
  EXPECT_EQ(slots_.lease(lessee(2, 1001), kStart + std::chrono::hours(1))->index, 2u);
  EXPECT_EQ(slots_.lease(lessee(3, 1000), kStart + std::chrono::hours(1))->index, 1u);
}

TEST_F(SlotTableTest, LendsASlotToAnotherUserAfterALongRestIfNobodyHasItsSocket) {
  EXPECT_EQ(slots_.lease(without_socket(1, 1000), kStart)->index, 1u);
  ASSERT_TRUE(slots_.take_back(1, 1, kStart));
  EXPECT_EQ(slots_.lease(without_socket(2, 1001), kStart + std::chrono::seconds(5))->index, 2u);
  EXPECT_EQ(slots_.lease(without_socket(2, 1001), kStart + std::chrono::seconds(31))->index, 1u);
}

// Peers still know connections of its QPs.
TEST_F(SlotTableTest, KeepsASlotFromOthersWhileItsQpsAreConnected) {
  bool is_connected = true;
  Wire none(roce::kUdpPort);
  SlotTable slots(none, kOwn,
                  [&](uint32_t, bool to_another_user) { return !to_another_user || !is_connected; });
  const auto first = slots.lease(without_socket(1, 1000), kStart);
  ASSERT_TRUE(first);
  ASSERT_TRUE(slots.take_back(first->index, 1, kStart));
  const TimePoint later = kStart + std::chrono::hours(1);
  const auto others = slots.lease(without_socket(2, 1001), later);
  ASSERT_TRUE(others);
  EXPECT_NE(others->index, first->index);
  EXPECT_EQ(slots.lease(without_socket(3, 1000), later)->index, first->index) << "its own user may";
  ASSERT_TRUE(slots.take_back(first->index, 3, later));
  is_connected = false;
  EXPECT_EQ(slots.lease(without_socket(2, 1001), later + std::chrono::minutes(1))->index, first->index);
}

TEST_F(SlotTableTest, KeepsInTheTakeoverStateWhoseSocketsNobodyHas) {
  auto takeover_state = TakeoverState::create();
  ASSERT_TRUE(takeover_state);
  ASSERT_TRUE(slots_.lease(without_socket(1, 1000), kStart));
  ASSERT_TRUE(slots_.lease(lessee(1, 1000), kStart));
  for (const uint32_t index : {1u, 2u}) ASSERT_TRUE(slots_.take_back(index, 1, kStart));
  ASSERT_TRUE(takeover_state->rewrite(slots_.records(), {}));
  TakeoverState::Contents contents = TakeoverState::take(takeover_state->client_end());
  Wire wire(roce::kUdpPort);
  SlotTable after(wire, kOwn);
  ASSERT_TRUE(after.adopt(contents, kStart));
  const TimePoint later = kStart + std::chrono::minutes(1);
  EXPECT_EQ(after.lease(lessee(2, 1001), later)->index, 1u);
  EXPECT_EQ(after.lease(lessee(2, 1001), later)->index, 3u);
}

TEST_F(SlotTableTest, LeavesSlotsForOthersWhateverOneUserTakes) {
  Wire none(roce::kUdpPort);
  SlotTable slots(none, kOwn);
  size_t taken = 0;
  Result<LeasedSlot> last = slots.lease(lessee(1), kStart);
  for (; last; last = slots.lease(lessee(1), kStart)) ++taken;
  EXPECT_EQ(last.error().code, EDQUOT);
  EXPECT_LT(taken, SlotTable::kSize.all - SlotTable::kSize.reserve);
  EXPECT_TRUE(slots.lease(lessee(2, 1001), kStart));
  EXPECT_TRUE(slots.lease(lessee(3, kOwn), kStart));
  take_back_all(slots, 1, kStart);
  EXPECT_TRUE(slots.lease(lessee(1), kStart));
}

// Otherwise a user who leases and returns slots endlessly would keep all slots resting.
TEST_F(SlotTableTest, SlotsThatRestCountForTheUserWhoHadThem) {
  Wire none(roce::kUdpPort);
  SlotTable slots(none, kOwn);
  TimePoint now = kStart;
  for (int round = 0; round < 20; ++round, now += std::chrono::seconds(1)) {
    size_t taken = 0;
    while (slots.lease(lessee(1), now)) ++taken;
    EXPECT_GT(taken, 0u) << "its own, after a rest or without";
    take_back_all(slots, 1, now);
    EXPECT_TRUE(slots.lease(lessee(2, 1001), now)) << round;
  }
  take_back_all(slots, 2, now);
  now += std::chrono::seconds(31);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(slots.lease(lessee(3, 1002), now));
}

Lessee stranger(uint64_t session, uid_t uid) {
  Lessee stranger = lessee(session, uid);
  stranger.shares_port = false;
  return stranger;
}

// Their processes never had the socket, so the slot needs no rest for another user.
TEST_F(SlotTableTest, LeasesAForwardedSlotToAnyUser) {
  const auto leased = slots_.lease(stranger(1, 1000), kStart);
  ASSERT_TRUE(leased);
  EXPECT_TRUE(leased->is_forwarded);
  ASSERT_TRUE(slots_.take_back(leased->index, 1, kStart));
  EXPECT_EQ(slots_.lease(stranger(2, 1001), kStart + std::chrono::hours(1))->index, leased->index);
  ASSERT_TRUE(slots_.take_back(leased->index, 2, kStart + std::chrono::hours(1)));
  const auto with_socket = slots_.lease(lessee(3, 0), kStart + std::chrono::hours(2));
  EXPECT_EQ(with_socket->index, leased->index);
  EXPECT_FALSE(with_socket->is_forwarded);
}

// The slot's socket exists by then, and is leased as soon as possible.
TEST_F(SlotTableTest, ASlotThatCouldNotBeForwardedIsNotLost) {
  ASSERT_EQ(slots_.lease(without_socket(1, 1000), kStart)->index, 1u);
  std::vector<UniqueFd> others;
  do {
    others.emplace_back(::dup(0));
  } while (others.back().get() < 200);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(others.back().get()) + 3;  // enough for a status page and a socket
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto refused = slots_.lease(without_socket(1, 1000), kStart);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EMFILE);
  EXPECT_EQ(slots_.lease(without_socket(1, 1000), kStart)->index, 2u);
}

TEST_F(SlotTableTest, TheNextAgentGoesOnHandingOver) {
  ASSERT_TRUE(slots_.lease(lessee(1, 0), kStart));
  const auto leased = slots_.lease(stranger(2, 1000), kStart);
  ASSERT_TRUE(leased);
  control::Slot slot;
  slot.is_forwarded = wire_.take_receiver(leased->index);
  auto takeover_state = TakeoverState::create();
  ASSERT_TRUE(takeover_state);
  ASSERT_TRUE(takeover_state->rewrite(slots_.records(), {}));
  // The former forwarder, which goes on here, puts datagrams into the same pair.
  Wire next_wire(roce::kUdpPort);
  SlotTable next(next_wire, kOwn);
  TakeoverState::Contents contents = TakeoverState::take(takeover_state->client_end());
  ASSERT_TRUE(next.adopt(contents, kStart));
  next_wire.unmute(leased->index);
  EXPECT_TRUE(next.find_leased(leased->index)->is_forwarded);
  EXPECT_FALSE(next.find_leased(1)->is_forwarded);
  ASSERT_TRUE(test::send_to_slot(leased->index, 7));
  EXPECT_THAT(test::received_tags(slot), ElementsAre(7u));
  // The agent after that can take over as well.
  EXPECT_GE(next.record(leased->index).forwarder_end, 0);
}

TEST_F(SlotTableTest, LendsASocketWithoutWhatCameForItsLastOwner) {
  control::Slot slot;
  slot.socket = UniqueFd(::dup(slots_.lease(lessee(1), kStart)->socket));
  ASSERT_TRUE(test::send_to_slot(1, 10));
  EXPECT_THAT(test::received_tags(slot), ElementsAre(10u));
  ASSERT_TRUE(test::send_to_slot(1, 11));
  ASSERT_TRUE(slots_.take_back(1, 1, kStart));
  ASSERT_TRUE(test::send_to_slot(1, 12));
  EXPECT_THAT(test::received_tags(slot), IsEmpty());
  ASSERT_EQ(slots_.lease(lessee(2), kStart + std::chrono::hours(1))->index, 1u);
  EXPECT_THAT(test::received_tags(slot), IsEmpty());
  ASSERT_TRUE(test::send_to_slot(1, 13));
  EXPECT_THAT(test::received_tags(slot), ElementsAre(13u));
}

TEST_F(SlotTableTest, TakesASlotBackOnlyFromItsBorrower) {
  ASSERT_TRUE(slots_.lease(lessee(1), kStart));
  EXPECT_EQ(slots_.take_back(1, 2, kStart).error().code, ENOENT);
  EXPECT_EQ(slots_.take_back(2, 1, kStart).error().code, ENOENT);
  EXPECT_TRUE(slots_.take_back(1, 1, kStart));
  EXPECT_EQ(slots_.take_back(1, 1, kStart).error().code, ENOENT);
}

std::vector<uint32_t> indexes_of(const std::vector<LeasedSlot>& slots) {
  std::vector<uint32_t> indexes;
  for (const LeasedSlot& slot : slots) indexes.push_back(slot.index);
  return indexes;
}

// The agent needs this list whenever a client comes or goes, so it is maintained rather than counted.
TEST_F(SlotTableTest, KnowsWhatASessionHasAndWhatOtherUsersHave) {
  for (const uint64_t session : {1, 2, 1}) ASSERT_TRUE(slots_.lease(lessee(session), kStart));
  ASSERT_TRUE(slots_.lease(lessee(3, kOwn), kStart));
  EXPECT_THAT(indexes_of(slots_.leased_to(1)), ElementsAre(1, 3));
  EXPECT_THAT(indexes_of(slots_.leased_to(3)), ElementsAre(4));
  EXPECT_EQ(slots_.leased_to_other_users(), 3u);
  ASSERT_TRUE(slots_.take_back(1, 1, kStart));
  EXPECT_FALSE(slots_.take_back(2, 1, kStart)) << "not its own";
  EXPECT_THAT(indexes_of(slots_.leased_to(1)), ElementsAre(3));
  EXPECT_EQ(slots_.leased_to_other_users(), 2u);
  take_back_all(slots_, 1, kStart);
  take_back_all(slots_, 3, kStart);
  EXPECT_THAT(slots_.leased_to(1), IsEmpty());
  EXPECT_FALSE(slots_.first_leased_to(1));
  EXPECT_THAT(indexes_of(slots_.leased_to(2)), ElementsAre(2));
  EXPECT_EQ(slots_.leased_to_other_users(), 1u);
}

TEST_F(SlotTableTest, KnowsItOfTheSlotsOfAFormerAgentToo) {
  ASSERT_TRUE(slots_.lease(lessee(1), kStart));
  ASSERT_TRUE(slots_.lease(lessee(2, kOwn), kStart));
  auto takeover_state = TakeoverState::create();
  ASSERT_TRUE(takeover_state);
  ASSERT_TRUE(takeover_state->rewrite(slots_.records(), {}));
  TakeoverState::Contents contents = TakeoverState::take(takeover_state->client_end());
  Wire wire(roce::kUdpPort);
  SlotTable after(wire, kOwn);
  ASSERT_TRUE(after.adopt(contents, kStart));
  EXPECT_EQ(after.leased_to_other_users(), 1u);
  EXPECT_THAT(indexes_of(after.leased_to(0)), ElementsAre(1, 2));
  ASSERT_TRUE(after.keep(1, lessee(7)));
  EXPECT_THAT(indexes_of(after.leased_to(0)), ElementsAre(2));
  EXPECT_THAT(indexes_of(after.leased_to(7)), ElementsAre(1));
  EXPECT_EQ(after.leased_to_other_users(), 1u);
  take_back_all(after, 7, kStart);
  EXPECT_EQ(after.leased_to_other_users(), 0u);
}

TEST_F(SlotTableTest, RunsOutAtTheMulticastSlotAndThenUsesWhatHasNotRested) {
  uint32_t last = 0;
  for (uint32_t i = 1; i < roce::Qpn::kSlots - 1; ++i) {
    const auto slot = slots_.lease(lessee(1, kOwn), kStart);
    if (!slot) GTEST_SKIP() << "not enough descriptors here";
    last = slot->index;
  }
  EXPECT_EQ(last, roce::Qpn::kSlots - 2);
  EXPECT_EQ(slots_.lease(lessee(1, kOwn), kStart).error().code, ENOSPC);
  ASSERT_TRUE(slots_.take_back(500, 1, kStart));
  EXPECT_EQ(slots_.lease(lessee(1, kOwn), kStart)->index, 500u);
}

TEST_F(SlotTableTest, NumbersSlotsWithoutAWireFromTheTop) {
  Wire none(roce::kUdpPort);  // never opened
  SlotTable slots(none, kOwn);
  const auto slot = slots.lease(lessee(1), kStart);
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot->index, roce::Qpn::kSlots - 2);
  EXPECT_EQ(slot->socket, -1);
  EXPECT_EQ(slots.lease(lessee(1), kStart)->index, roce::Qpn::kSlots - 3);
}

uint64_t cookie_of(int socket) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  EXPECT_EQ(::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &length), 0);
  return cookie;
}

TEST_F(SlotTableTest, ComesOutOfTheTakeoverStateUnchanged) {
  auto takeover_state = TakeoverState::create();
  ASSERT_TRUE(takeover_state);
  ASSERT_TRUE(takeover_state->rewrite(slots_.records(), {}));
  // Often enough that the takeover state is rewritten several times.
  TimePoint now = kStart;
  for (int i = 0; i < 300; ++i) {
    now += std::chrono::seconds(1);
    const auto slot = slots_.lease(lessee(1), now);
    ASSERT_TRUE(slot);
    ASSERT_TRUE(takeover_state->put_slot(slots_.record(slot->index)));
    if (i % 3 != 0) {
      ASSERT_TRUE(slots_.take_back(slot->index, 1, now));
      ASSERT_TRUE(takeover_state->put_slot(slots_.record(slot->index)));
    }
    if (!takeover_state->is_long()) continue;
    ASSERT_TRUE(takeover_state->rewrite(slots_.records(), {}));
  }
  const auto expected = slots_.records();
  std::vector<uint64_t> cookies;
  for (const SlotRecord& slot : expected) cookies.push_back(cookie_of(slot.socket));

  TakeoverState::Contents contents = TakeoverState::take(takeover_state->client_end());
  ASSERT_EQ(contents.slots.size(), expected.size());
  Wire wire(roce::kUdpPort);
  SlotTable after(wire, kOwn);
  ASSERT_TRUE(after.adopt(contents, now));
  ASSERT_EQ(wire.size(), wire_.size());
  const auto records = after.records();
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].index, expected[i].index);
    EXPECT_EQ(records[i].leased, expected[i].leased);
    EXPECT_EQ(records[i].uid, expected[i].uid);
    EXPECT_EQ(cookie_of(records[i].socket), cookies[i]);
  }
}

TEST_F(SlotTableTest, GivesAKeptSlotOnlyToTheProcessThatHadIt) {
  auto takeover_state = TakeoverState::create();
  ASSERT_TRUE(takeover_state);
  ASSERT_TRUE(slots_.lease(lessee(1, 1000), kStart));
  ASSERT_TRUE(takeover_state->rewrite(slots_.records(), {}));
  TakeoverState::Contents contents = TakeoverState::take(takeover_state->client_end());
  Wire wire(roce::kUdpPort);
  SlotTable after(wire, kOwn);
  ASSERT_TRUE(after.adopt(contents, kStart));
  EXPECT_EQ(after.keep(1, lessee(7, 1001)).error().code, ENOENT);
  EXPECT_EQ(after.keep(2, lessee(7, 1000)).error().code, ENOENT);
  Lessee another = lessee(7, 1000);
  another.pid = 43;
  EXPECT_EQ(after.keep(1, another).error().code, ENOENT) << "another process of the user";
  EXPECT_TRUE(after.keep(1, lessee(7, 1000)));
  EXPECT_EQ(after.keep(1, lessee(8, 1000)).error().code, ENOENT);
}

// Makes no use of the start time, which the main thread must not read.
TEST(ProcessNumber, IsTheSameForAllSessionsOfAProcess) {
  Lessee one = lessee(1), other = lessee(2);
  EXPECT_EQ(process_number(one), process_number(other));
  EXPECT_NE(process_number(one), process_number(lessee(1, 1001)));
  EXPECT_NE(process_number(one), process_number({.session = 1, .uid = one.uid, .pid = 43, .program = {}}));
  one.pid = other.pid = 0;
  EXPECT_NE(process_number(one), process_number(other)) << "nothing is known of their processes";
  one.process = share_process(watch_process(::getpid()));
  other.process = share_process(watch_process(::getpid()));
  if (unique_number_of(one.process->get()) == 0) GTEST_SKIP() << "before Linux 6.9";
  EXPECT_EQ(process_number(one), process_number(other));
}

// The slot table of the next agent, restored from the takeover state.
class NextAgent {
 public:
  explicit NextAgent(const SlotTable& before) {
    auto takeover_state = TakeoverState::create();
    if (!takeover_state || !takeover_state->rewrite(before.records(), {})) return;
    TakeoverState::Contents contents = TakeoverState::take(takeover_state->client_end());
    is_there_ = slots_.adopt(contents, kStart).has_value();
  }
  bool is_there() const { return is_there_; }
  SlotTable& slots() { return slots_; }

 private:
  Wire wire_{roce::kUdpPort};
  SlotTable slots_{wire_, kOwn};
  bool is_there_ = false;
};

// Each reading of a page may take as long as its user likes.
TEST_F(SlotTableTest, ReadsTheSecretOfAnOrphanAFewTimesOnly) {
  const auto leased = slots_.lease(lessee(1, 1000), kStart);
  ASSERT_TRUE(leased);
  const protocol::SlotSecret secret = protocol::secret_in(leased->page);
  NextAgent next(slots_);
  ASSERT_TRUE(next.is_there());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(next.slots().claim(1, {secret[0], secret[1] + 1}, lessee(7, 1000)).error().code, ENOENT);
  }
  EXPECT_EQ(next.slots().claim(1, secret, lessee(7, 1000)).error().code, ENOENT);
}

// As in two containers of a pod: one agent's pid 42 is another process, or none, for the next agent.
TEST_F(SlotTableTest, KnowsAProcessByItsStatusPageWhereItsPidIsAnother) {
  const auto leased = slots_.lease(lessee(1, 1000), kStart);
  ASSERT_TRUE(leased);
  const protocol::SlotSecret secret = protocol::secret_in(leased->page);
  ASSERT_TRUE(protocol::is_set(secret));
  NextAgent next(slots_);
  ASSERT_TRUE(next.is_there());
  Lessee unseen = lessee(7, 1000);
  unseen.pid = 0;
  EXPECT_EQ(next.slots().claim(1, {}, unseen).error().code, ENOENT);
  EXPECT_EQ(next.slots().claim(1, {secret[0], secret[1] + 1}, unseen).error().code, ENOENT);
  EXPECT_EQ(next.slots().claim(2, secret, unseen).error().code, ENOENT);
  EXPECT_EQ(next.slots().claim(1, secret, lessee(7, 1001)).error().code, ENOENT) << "another user";
  EXPECT_TRUE(next.slots().claim(1, secret, unseen));
  EXPECT_EQ(next.slots().claim(1, secret, unseen).error().code, ENOENT) << "it has come back already";
}

TEST_F(SlotTableTest, GivesASlotOfAProcessThatItDoesNotSeeToNoneThatDoesNotKnowTheSecret) {
  Lessee unseen = lessee(1, 1000);
  unseen.pid = 0;
  ASSERT_TRUE(slots_.lease(unseen, kStart));
  NextAgent next(slots_);
  ASSERT_TRUE(next.is_there());
  unseen.session = 7;
  EXPECT_EQ(next.slots().keep(1, unseen).error().code, ENOENT);
}

TEST_F(SlotTableTest, GivesNoTwoSlotsTheSameSecret) {
  const auto one = slots_.lease(lessee(1), kStart), other = slots_.lease(lessee(1), kStart);
  ASSERT_TRUE(one && other);
  EXPECT_NE(protocol::secret_in(one->page), protocol::secret_in(other->page));
}

TEST_F(SlotTableTest, TheNextAgentKnowsProcessesByTheirPidfds) {
  Lessee self = lessee(1, 1000);  // "pid 42", as it would be in another pid namespace
  self.process = share_process(watch_process(::getpid()));
  ASSERT_TRUE(self.process);
  ASSERT_TRUE(slots_.lease(self, kStart));
  ASSERT_TRUE(slots_.lease(without_socket(2, 1001), kStart)) << "the forwarder's descriptor comes before it";
  NextAgent next(slots_);
  ASSERT_TRUE(next.is_there());
  const Lessee adopted = next.slots().find_leased(1)->lessee;
  ASSERT_TRUE(adopted.process);
  EXPECT_EQ(adopted.pid, ::getpid());
  EXPECT_FALSE(next.slots().find_leased(2)->lessee.process);
  EXPECT_TRUE(next.slots().find_leased(2)->is_forwarded);
  NextAgent after(next.slots());
  ASSERT_TRUE(after.is_there());
  EXPECT_EQ(after.slots().find_leased(1)->lessee.pid, ::getpid());
}

TEST_F(SlotTableTest, GivesTheSlotOfAProcessThatHasEndedToNoLaterOneOfItsPid) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  Lessee one = lessee(1, 1000);
  one.process = share_process(watch_process(child));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(slots_.lease(one, kStart));
  NextAgent next(slots_);
  ASSERT_TRUE(next.is_there());
  Lessee later = lessee(7, 1000);
  later.pid = child;
  EXPECT_TRUE(next.slots().keep(1, later)) << "it lives";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(next.slots().keep(2, later).error().code, ENOENT);
}

TEST_F(SlotTableTest, RefusesATakeoverStateThatLacksASocket) {
  auto takeover_state = TakeoverState::create();
  ASSERT_TRUE(takeover_state);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(slots_.lease(lessee(1), kStart));
  auto records = slots_.records();
  records.erase(records.begin() + 1);
  ASSERT_TRUE(takeover_state->rewrite(records, {}));
  TakeoverState::Contents contents = TakeoverState::take(takeover_state->client_end());
  Wire wire(roce::kUdpPort);
  SlotTable after(wire, kOwn);
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

TEST(TakeoverState, IgnoresOtherMessages) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const UniqueFd in(ends[0]);
  const UniqueFd out(ends[1]);
  for (size_t length : {1u, 8u, 9u, 96u, 500u}) {
    const std::vector<char> garbage(length, 'v');
    ASSERT_EQ(::send(in.get(), garbage.data(), length, 0), static_cast<ssize_t>(length));
  }
  EXPECT_TRUE(TakeoverState::take(out.get()).slots.empty());
  const UniqueFd null(::open("/dev/null", O_RDONLY));
  EXPECT_TRUE(TakeoverState::take(null.get()).slots.empty());
}

class SlotTablePages : public ::testing::Test {
 protected:
  static constexpr uid_t kHolder = 1000;
  static constexpr size_t kDescriptors = 1000;

  Result<LeasedSlot> lease() {
    Lessee holder;
    holder.session = 1;
    holder.uid = kHolder;
    return slots.lease(holder, kStart);
  }
  // Number of descriptors that wait to be closed, or whose end has not been taken.
  size_t counted() const {
    size_t free = kDescriptors;
    while (!closer.allows(0, free)) --free;
    return kDescriptors - free;
  }

  ForeignCloser closer{{.all = kDescriptors, .reserve = 0}};
  Wire wire{roce::kUdpPort, &closer};
  SlotTable slots{wire, 0};
  const ServedUsers served;
  TakeoverRecord takeover_state{slots, served, closer};
};

// Descriptors of all users would wait on one thread, and count where no user has a share.
TEST_F(SlotTablePages, InTheTakeoverStateAreNotClosedWhenItIsRewritten) {
  ASSERT_TRUE(takeover_state.create());
  for (int i = 0; i < 20; ++i) {
    const auto slot = lease();
    ASSERT_TRUE(slot);
    takeover_state.put_slot(slot->index);
  }
  for (int i = 0; i < 3; ++i) takeover_state.rewrite();
  EXPECT_EQ(counted(), 0u);
  EXPECT_EQ(TakeoverState::take(takeover_state.client_end()).slots.size(), 20u);
}

// A user can keep its thread from closing them, and would have more and more.
TEST_F(SlotTablePages, CountUntilTheyAreClosed) {
  Wire no_sockets{roce::kUdpPort + 1, &closer};
  SlotTable table{no_sockets, 0};
  const auto lease_all = [&](TimePoint now) {
    size_t leases = 0;
    while (table.lease(lessee(1, kHolder), now)) ++leases;
    return leases;
  };
  const TimePoint later = kStart + std::chrono::hours(1);
  const size_t most = lease_all(kStart);
  std::atomic<bool> is_stuck = true;
  ASSERT_TRUE(closer.work_with(
      kHolder, table.first_leased_to(1)->page, [&](int) { is_stuck.wait(true); }, [] {}));
  take_back_all(table, 1, kStart);
  EXPECT_EQ(lease_all(later), 0u);
  is_stuck = false;
  is_stuck.notify_all();
  while (closer.waiting(kHolder) > 0) std::this_thread::yield();
  closer.take_closed();
  EXPECT_EQ(lease_all(later), most);
}

// The last close of a page may take as long as its user likes.
TEST_F(SlotTablePages, OfAnEndedLeaseOutlastItsMessages) {
  ASSERT_TRUE(takeover_state.create());
  const auto slot = lease();
  ASSERT_TRUE(slot);
  takeover_state.put_slot(slot->index);
  std::atomic<bool> is_stuck = true;
  ASSERT_TRUE(closer.work_with(
      kHolder, slot->page, [&](int) { is_stuck.wait(true); }, [] {}));
  takeover_state.lease_ending(*slot);
  ASSERT_TRUE(slots.take_back(slot->index, 1, kStart));
  takeover_state.put_slot(slot->index);
  EXPECT_EQ(closer.waiting(kHolder), 2u);
  takeover_state.rewrite();
  EXPECT_EQ(closer.waiting(kHolder), 3u);
  is_stuck = false;
  is_stuck.notify_all();
  EXPECT_TRUE(test::becomes_true([&] { return closer.waiting(kHolder) == 0; }));
}

// A close waits for the locks of files, which any process can hold.
TEST_F(SlotTablePages, AreClosedOnTheThreadOfTheirUser) {
  const auto slot = lease();
  ASSERT_TRUE(slot);
  std::atomic<bool> is_stuck = true;
  ASSERT_TRUE(closer.work_with(
      kHolder, slot->page, [&](int) { is_stuck.wait(true); }, [] {}));
  ASSERT_TRUE(slots.take_back(slot->index, 1, kStart));
  EXPECT_EQ(closer.waiting(kHolder), 2u);
  is_stuck = false;
  is_stuck.notify_all();
  EXPECT_TRUE(test::becomes_true([&] { return closer.waiting(kHolder) == 0; }));
}

}  // namespace
}  // namespace verbena::agent
