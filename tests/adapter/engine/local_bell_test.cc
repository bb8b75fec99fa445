// SPDX-License-Identifier: Apache-2.0
// Who is given the bell of a channel's other end, and who is rung by a byte on the socket as ever: processes
// of another user, of an older library, and those whose bell is of no use.
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/engine/support/handshake.h"
#include "adapter/engine/support/watches.h"
#include "adapter/shm/local_line.h"

namespace verbena::engine {
namespace {

constexpr uid_t kAnotherUser = 65'534;

class LocalBell : public testing::Test {
 protected:
  LocalBell() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    our_end.reset(ends[0]);
    other.reset(ends[1]);
  }

  // The channel is open from our side when the other, of which the test is the user, has accepted.
  void we_offer() {
    line = std::move(*LocalLine::offer(std::move(our_end), board.get(), &bell));
    EXPECT_GE(hear().size(), sizeof(Said));
  }
  void they_answer_from_another_user() {
    auto half = make_half();
    ASSERT_TRUE(half);
    say({.type = kHalf, .takes_bells = 1}, half->second.get(), kAnotherUser);
  }
  // With a file, and in the name of a user.
  void say(const Said& said, int with = -1, uid_t user = ::getuid()) {
    struct Control {
      alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> credentials{};
      std::array<std::byte, CMSG_SPACE(sizeof(int))> file{};
    } control;
    write(control.credentials, SCM_CREDENTIALS, ucred{::getpid(), user, static_cast<gid_t>(user)});
    write(control.file, SCM_RIGHTS, with);
    iovec data{const_cast<Said*>(&said), sizeof said};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = with >= 0 ? sizeof control : sizeof control.credentials;
    ASSERT_GT(::sendmsg(other.get(), &message, MSG_NOSIGNAL), 0);
    line->read_socket();
  }
  template <size_t kBytes, class Value>
  static void write(std::array<std::byte, kBytes>& to, int type, const Value& value) {
    const cmsghdr head{.cmsg_len = CMSG_LEN(sizeof value), .cmsg_level = SOL_SOCKET, .cmsg_type = type};
    std::memcpy(to.data(), &head, sizeof head);
    std::memcpy(to.data() + CMSG_LEN(0), &value, sizeof value);
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
  // Root alone can say that it is somebody else.
  static bool may_be_anyone() { return ::geteuid() == 0; }

  std::unique_ptr<OwnBoard> board = OwnBoard::make();
  Bell bell = *Bell::make();
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
    we_offer();
    they_answer_from_another_user();
    ASSERT_TRUE(line->is_open());
    EXPECT_EQ(type_of(hear()), kHalf);
  }
};

// The process of another user.
using ForeignRings = SlowSocket;

TEST_F(ForeignRings, MayComeAsOftenAsTheyAreAskedFor) {
  for (int i = 0; i < 1000; ++i) {
    line->expect_ring();
    ASSERT_EQ(::send(other.get(), "", 1, 0), 1);
    line->read_socket();
  }
  EXPECT_TRUE(line->is_open());
}

// Each costs a call, so a process could keep us busy.
TEST_F(ForeignRings, EndTheLineWhenTheyComeWithoutEnd) {
  int rings = 0;
  for (; rings < 1000 && line->is_open(); ++rings) {
    ASSERT_EQ(::send(other.get(), "", 1, 0), 1);
    line->read_socket();
  }
  EXPECT_EQ(line->state(), LocalLine::State::kLost);
  EXPECT_GT(rings, 10) << "some are spare";
  EXPECT_LT(rings, 100);
}

TEST_F(SlowSocket, LosesTheLineThatRingsIt) {
  for (int i = 0; i < 100; ++i) line->ring();
  EXPECT_TRUE(line->is_open());
  const Watches watches(other.get());
  int rings = 0;
  for (; rings < 100 && line->is_open(); ++rings) line->ring();
  EXPECT_EQ(line->state(), LocalLine::State::kLost);
  EXPECT_TRUE(line->was_slow());
  EXPECT_LE(rings, 1 + CallCosts::kMaxSlow);
}

TEST_F(SlowSocket, LosesTheLineThatReadsFromIt) {
  const Watches watches(other.get());
  int rings = 0;
  for (; rings < 100 && line->is_open(); ++rings) {
    ASSERT_EQ(::send(other.get(), "", 1, 0), 1);
    line->read_socket();
  }
  EXPECT_TRUE(line->was_slow());
  EXPECT_LE(rings, 1 + CallCosts::kMaxSlow);
}

}  // namespace
}  // namespace verbena::engine
