// SPDX-License-Identifier: Apache-2.0
// Who is given the bell of a channel's other end, and who is rung by a byte on the socket as ever: processes
// of another user, of an older library, and those whose bell is of no use.
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/engine/support/call_clock.h"
#include "adapter/engine/support/given_files.h"
#include "adapter/engine/support/handshake.h"
#include "adapter/engine/support/watches.h"
#include "adapter/shm/local_line.h"
#include "adapter/shm/unread_files.h"
#include "control/model/message_socket.h"

namespace verbena::engine {
namespace {

class LocalBell : public testing::Test {
 protected:
  LocalBell() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    accounts.handshake.clock = accounts.open.clock = &clock;
    our_end.reset(ends[0]);
    other.reset(ends[1]);
  }

  // The channel is open from our side when the other, of which the test is the user, has accepted.
  void we_offer() {
    line = std::move(*LocalLine::offer(std::move(our_end), board.get(), &bell, accounts));
    EXPECT_GE(hear().size(), sizeof(Said));
  }
  void they_answer_from_another_user() {
    auto half = make_half();
    ASSERT_TRUE(half);
    say({.type = kHalf, .takes_bells = 1}, half->second.get(), kAnotherUser);
  }
  // With a file, and in the name of a user.
  void say(const Said& said, int with = -1, uid_t user = ::getuid()) {
    ASSERT_TRUE(say_as(user, other.get(), std::as_bytes(std::span(&said, 1)), with));
    line->read_socket();
  }
  // The next message that we have sent; the file that came with it is in `file`.
  std::vector<std::byte> hear() {
    std::vector<std::byte> bytes(256);
    auto heard = hear_from(other.get(), bytes);
    bytes.resize(heard ? heard->bytes : 0);
    file = heard ? std::move(heard->file) : UniqueFd();
    return bytes;
  }
  static uint32_t type_of(const std::vector<std::byte>& message) {
    Said said;
    if (message.size() < sizeof said) return 0;
    std::memcpy(&said, message.data(), sizeof said);
    return said.type;
  }
  bool is_rung_by_socket() { return hear().size() == 1; }

  std::unique_ptr<OwnBoard> board = OwnBoard::make();
  Bell bell = *Bell::make();
  FakeCallClock clock;
  ChannelAccounts accounts;
  UniqueFd our_end;
  UniqueFd other;
  UniqueFd file;
  std::unique_ptr<LocalLine> line;
};

TEST_F(LocalBell, OfEitherIsRungByTheOther) {
  auto their_board = OwnBoard::make();
  const Bell their_bell = *Bell::make();
  line = std::move(*LocalLine::offer(std::move(our_end), board.get(), &bell));
  const auto theirs = LocalLine::await(UniqueFd(::dup(other.get())), their_board.get(), &their_bell);
  for (int i = 0; i < 2; ++i) {
    theirs->read_socket();
    line->read_socket();
  }
  line->ring();
  EXPECT_TRUE(their_bell.hear());
  theirs->ring();
  EXPECT_TRUE(bell.hear());
}

TEST_F(LocalBell, IsGivenToAProcessOfOneUser) {
  we_offer();
  say({.type = kAccept, .takes_bells = 1});
  EXPECT_EQ(type_of(hear()), kPresent);
  EXPECT_EQ(type_of(hear()), kBell);
  EXPECT_TRUE(Bell::of_other(std::move(file))->ring());
  EXPECT_TRUE(bell.hear());
}

// It would hang up on who says what it does not know.
TEST_F(LocalBell, IsNotSpokenOfToAnOlderLibrary) {
  we_offer();
  say({.type = kAccept, .takes_bells = 0});
  EXPECT_TRUE(line->is_open());
  EXPECT_EQ(type_of(hear()), kPresent);
  EXPECT_TRUE(hear().empty());
  line->ring();
  EXPECT_TRUE(is_rung_by_socket());
}

TEST_F(LocalBell, IsNotNeededToRingUs) {
  we_offer();
  say({.type = kAccept, .takes_bells = 0});
  const char ring = 0;
  ASSERT_EQ(::send(other.get(), &ring, sizeof ring, 0), 1);
  line->read_socket();
  EXPECT_TRUE(line->is_open());
}

TEST_F(LocalBell, IsNotGivenToAProcessOfAnotherUser) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  we_offer();
  they_answer_from_another_user();
  EXPECT_TRUE(line->is_open());
  EXPECT_EQ(type_of(hear()), kHalf);
  EXPECT_TRUE(hear().empty()) << "nor a board";
  line->ring();
  EXPECT_TRUE(is_rung_by_socket());
}

TEST_F(LocalBell, IsNotTakenFromAProcessOfAnotherUser) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  we_offer();
  they_answer_from_another_user();
  ASSERT_TRUE(line->is_open());
  const Bell theirs = *Bell::make();
  say({.type = kBell, .takes_bells = 1}, theirs.ringing_fd(), kAnotherUser);
  EXPECT_EQ(line->state(), LocalLine::State::kLost);
}

// Each may bring a file, which must be closed.
TEST_F(LocalBell, EndsWithASecondPresentationOfAnotherUser) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  we_offer();
  they_answer_from_another_user();
  say({.type = kPresent}, -1, kAnotherUser);
  EXPECT_TRUE(line->is_open());
  say({.type = kPresent}, -1, kAnotherUser);
  EXPECT_EQ(line->state(), LocalLine::State::kLost);
}

// Such a one can be filled, and keeps waiting who rings it.
TEST_F(LocalBell, IsNoEventfd) {
  we_offer();
  say({.type = kAccept, .takes_bells = 1});
  const UniqueFd eventfd(::eventfd(0, EFD_CLOEXEC));
  say({.type = kBell, .takes_bells = 1}, eventfd.get());
  EXPECT_EQ(line->state(), LocalLine::State::kLost);
}

TEST_F(LocalBell, ThatIsSilencedLeavesTheSocket) {
  we_offer();
  say({.type = kAccept, .takes_bells = 1});
  EXPECT_EQ(type_of(hear()), kPresent);
  EXPECT_EQ(type_of(hear()), kBell);
  const Bell theirs = *Bell::make();
  say({.type = kBell, .takes_bells = 1}, theirs.ringing_fd());
  line->ring();
  EXPECT_TRUE(theirs.hear());
  EXPECT_FALSE(is_rung_by_socket());
  ASSERT_EQ(::shutdown(theirs.ringing_fd(), SHUT_RDWR), 0);
  line->ring();
  EXPECT_TRUE(is_rung_by_socket());
}

class SlowSocket : public LocalBell {
 protected:
  void SetUp() override {
    if (!may_be_anyone()) GTEST_SKIP() << "needs root";
    accounts.handshake.clock = accounts.open.clock = &kCallClock;
    we_offer();
    they_answer_from_another_user();
    ASSERT_TRUE(line->is_open());
    EXPECT_EQ(type_of(hear()), kHalf);
  }
};

// Each unread offer is a descriptor in flight, of which this user may have few.
TEST(LocalLineOffer, IsNotMadeToAUserWhoLeavesOthersUnread) {
  test::forget_given_files();
  const ChannelAccounts accounts{.handshake = {.user_id = kAnotherUser}, .open = {.user_id = kAnotherUser}};
  const auto board = OwnBoard::make();
  std::vector<UniqueFd> theirs;
  const auto offer = [&] {
    auto ends = control::make_socket_pair();
    theirs.push_back(std::move(ends->theirs));
    return LocalLine::offer(std::move(ends->ours), board.get(), nullptr, accounts).has_value();
  };
  for (size_t i = 0; i < kMaxUnreadOfUser; ++i) EXPECT_TRUE(offer());
  EXPECT_FALSE(offer());
  theirs.clear();
  EXPECT_TRUE(offer());
  theirs.clear();
  EXPECT_TRUE(may_send_file(kAnotherUser));
}

using SlowHandshake = LocalBell;

// The process of another user, by a clock that the test sets.
class ForeignRings : public LocalBell {
 protected:
  void SetUp() override {
    if (!may_be_anyone()) GTEST_SKIP() << "needs root";
    accounts.handshake.on_pause = accounts.open.on_pause = &on_pause;
    we_offer();
    they_answer_from_another_user();
    ASSERT_TRUE(line->is_open());
    EXPECT_EQ(type_of(hear()), kHalf);
    ASSERT_TRUE(line->announce_in(poll_set.get()));
    clock.each = std::chrono::microseconds(10);
  }
  bool is_all_read() const {
    int left = 0;
    return ::ioctl(other.get(), SIOCOUTQ, &left) == 0 && left == 0;
  }
  // It rings, and we read. Returns whether we did.
  bool is_read(const void* message = "", size_t bytes = 1) {
    EXPECT_EQ(::send(other.get(), message, bytes, 0), static_cast<ssize_t>(bytes));
    line->read_socket();
    return is_all_read();
  }
  // It rings until we do not read any more. Returns how often we have.
  int use_up_time() {
    int rings = 0;
    while (rings < 1000 && is_read()) ++rings;
    return rings;
  }
  bool is_announced() const {
    epoll_event event;
    return ::epoll_wait(poll_set.get(), &event, 1, 0) == 1;
  }

  int pauses = 0;
  const std::function<void()> on_pause = [this] { ++pauses; };
  const UniqueFd poll_set{::epoll_create1(EPOLL_CLOEXEC)};
};

TEST_F(ForeignRings, MayComeAsOftenAsTheyAreAskedFor) {
  for (int i = 0; i < 10'000; ++i) {
    line->expect_ring();
    ASSERT_TRUE(is_read());
  }
  EXPECT_EQ(pauses, 0);
}

// Each costs a call, so a process could keep us busy.
TEST_F(ForeignRings, AreNotReadBeyondTheirTimeIfNobodyAskedForThem) {
  const int rings = use_up_time();
  EXPECT_GT(rings, 400);
  EXPECT_LT(rings, 600) << "5 ms";
  EXPECT_EQ(pauses, 1);
  EXPECT_TRUE(line->is_open());
  EXPECT_FALSE(is_announced()) << "nobody is woken meanwhile";
  EXPECT_GT(line->resume(poll_set.get()), clock.now());
  EXPECT_FALSE(is_announced());
  clock.pass(std::chrono::seconds(1));
  EXPECT_EQ(line->resume(poll_set.get()), kNever);
  EXPECT_TRUE(is_announced());
  line->read_socket();
  EXPECT_TRUE(is_all_read());
}

TEST_F(ForeignRings, AreNotTheOnlyMessagesThatTakeTime) {
  const struct {
    Said said{.type = kAskForGroup};
    std::array<std::byte, 20> group{};  // no multicast address: nothing comes of it
  } asked;
  int messages = 0;
  while (messages < 1000 && is_read(&asked, sizeof asked)) ++messages;
  EXPECT_GT(messages, 400);
  EXPECT_LT(messages, 600);
}

TEST_F(ForeignRings, BeyondTheirTimeAreReadAgainWhenWeAskForOne) {
  use_up_time();
  line->expect_ring();
  EXPECT_EQ(line->resume(poll_set.get()), kNever);
  EXPECT_TRUE(is_announced());
  line->read_socket();
  EXPECT_TRUE(is_all_read());
}

// For room in its ring it can ask as often as it likes.
TEST_F(ForeignRings, ThatItCausesWait) {
  int rings = 0;
  for (; rings < 1000 && pauses == 0; ++rings) {
    line->ring(CallCosts::Cause::kTheirs);
    EXPECT_EQ(is_rung_by_socket(), pauses == 0);
  }
  EXPECT_LT(rings, 600);
  EXPECT_FALSE(is_rung_by_socket());
  line->ring();
  EXPECT_TRUE(is_rung_by_socket()) << "we have sent something";
  line->ring(CallCosts::Cause::kTheirs);
  clock.pass(std::chrono::seconds(1));
  EXPECT_EQ(line->resume(poll_set.get()), kNever);
  EXPECT_TRUE(is_rung_by_socket()) << "the other still sleeps";
}

// As if a third user had made the kernel slow for messages with descriptors.
TEST_F(ForeignRings, DoNotWaitForTheTimeThatTheHandshakeTook) {
  const std::shared_ptr<CallCosts> handshakes = accounts.handshake.user;
  handshakes->note(std::chrono::milliseconds(50), /*by_processor=*/true, CallCosts::Cause::kOurs,
                   clock.now());
  EXPECT_FALSE(accounts.allow(CallCosts::Cause::kOurs)) << "further channels wait";
  line->ring();
  EXPECT_TRUE(is_rung_by_socket());
  EXPECT_TRUE(is_read());
  EXPECT_EQ(pauses, 0);
}

TEST_F(SlowHandshake, CountsInAnAccountOfItsOwn) {
  if (!may_be_anyone()) GTEST_SKIP() << "needs root";
  clock.each = std::chrono::milliseconds(6);
  accounts.handshake.user->note(CallCosts::kNormal * 2, false, CallCosts::Cause::kOurs, clock.now());
  we_offer();
  they_answer_from_another_user();
  ASSERT_TRUE(line->is_open());
  EXPECT_FALSE(accounts.handshake.allow(CallCosts::Cause::kOurs));
  EXPECT_TRUE(accounts.open.allow(CallCosts::Cause::kOurs));
  EXPECT_FALSE(accounts.open.user->is_suspect(clock.now()));
}

// The poll set reports the end.
TEST_F(ForeignRings, DoNotHideTheEndOfTheLine) {
  use_up_time();
  line->lose();
  other.reset();
  EXPECT_EQ(line->resume(poll_set.get()), kNever);
  EXPECT_TRUE(is_announced());
  line->read_socket();
  EXPECT_TRUE(is_announced());
}

TEST_F(SlowSocket, IsNotRungAgainAndAgain) {
  const Watches watches(other.get());
  for (int i = 0; i < 100; ++i) line->ring();
  EXPECT_TRUE(line->is_open());
  int rings = 0;
  while (is_rung_by_socket()) ++rings;
  EXPECT_GE(rings, 1);
  EXPECT_LE(rings, 10);
}

TEST_F(SlowSocket, IsNotReadAgainAndAgain) {
  const Watches watches(other.get());
  int rings = 0;
  for (int left = 0; rings < 100 && left == 0; ++rings) {
    ASSERT_EQ(::send(other.get(), "", 1, 0), 1);
    line->read_socket();
    ASSERT_EQ(::ioctl(other.get(), SIOCOUTQ, &left), 0);
  }
  EXPECT_TRUE(line->is_open());
  EXPECT_LE(rings, 10);
}

}  // namespace
}  // namespace verbena::engine
