// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/cm/client_parts.h"
#include "base/socket_option.h"

namespace verbena::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Returns whether any epoll set of this process has the descriptor.
bool is_watched(int fd) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream info(entry.path());
    std::string word;
    int watched = 0;
    while (info >> word) {
      if (word == "tfd:" && info >> watched && watched == fd) return true;
    }
  }
  return false;
}

class EventChannelTest : public testing::Test {
 protected:
  struct Ends {
    std::unique_ptr<EventChannel> channel;
    UniqueFd program;
  };
  Ends open(bool is_named = true) { return open(loop_, ::geteuid(), is_named); }
  Ends open(EventLoop& loop, uid_t user, bool is_named = true) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    if (is_named) bind_to_random_name(fds[0]);
    agents_end_ = fds[0];
    return {std::make_unique<EventChannel>(loop, user, ClientFile(UniqueFd(fds[0]), user, closer_), 1,
                                           EventChannel::Tallies{of_client_, of_users_}),
            UniqueFd(fds[1])};
  }
  static void send(Ends& ends, uint32_t id, uint32_t listener = 0) {
    protocol::CmEvent event{};
    event.id = id;
    event.listener = listener;
    ends.channel->send(event);
  }
  // Fills the socket until further events have to wait.
  void fill(Ends& ends) {
    while (of_client_ == 0) send(ends, kFiller);
    ends.channel->drop_events(kFiller);
  }
  // Returns the events that the program reads, without the filler.
  std::vector<uint32_t> read(Ends& ends) {
    std::vector<uint32_t> ids;
    for (int quiet = 0; quiet < 4;) {
      protocol::CmEvent event;
      if (::recv(ends.program.get(), &event, sizeof event, 0) == sizeof event) {
        if (event.id != kFiller) ids.push_back(event.id);
        quiet = 0;
        continue;
      }
      ++quiet;
      loop_.later([] {});
      loop_.at(MonotonicClock::now(), [] {});  // makes run() do one round without waiting
      loop_.run_round();
    }
    return ids;
  }

  static constexpr uint32_t kFiller = 1'000'000;
  static constexpr uid_t kSlowUser = 1'000'000;
  EventLoop loop_;
  ForeignCloser closer_;
  int agents_end_ = -1;  // of the channel that was opened last
  size_t of_client_ = 0;
  Quota of_users_{Quota::Size::of(1 << 20), ::geteuid()};
};

// A send(2) on a nameless socket with SO_PASSCRED searches for a name, for as long as another user likes.
TEST_F(EventChannelTest, EventsWaitForTheNameOfTheirSocket) {
  auto ends = open(false);
  for (const uint32_t id : {1, 2}) send(ends, id);
  EXPECT_THAT(read(ends), IsEmpty());
  EXPECT_EQ(of_client_, 2u);
  const ClientFile socket(UniqueFd(::fcntl(agents_end_, F_DUPFD_CLOEXEC, 0)), ::geteuid(), closer_);
  ASSERT_TRUE(socket.name_socket());
  pollfd closed{closer_.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&closed, 1, -1), 1);
  EXPECT_TRUE(has_name(agents_end_));
  while (of_client_ != 0) loop_.run_round();
  EXPECT_THAT(read(ends), ElementsAre(1, 2));
}

// A message may take its sender long (SlowUsers).
TEST_F(EventChannelTest, EventsWaitWhileTheUserPauses) {
  TimePoint time = MonotonicClock::now();
  Duration each = UserTurns::kSlow;
  const auto clock = [&] { return time += each; };
  EventLoop loop(EventLoop::kPerRound, clock, clock);
  Ends ends = open(loop, kSlowUser);
  for (const uint32_t id : {1, 2, 3, 4, 5, 6}) send(ends, id);
  EXPECT_EQ(of_client_, 4u);
  EXPECT_THAT(read(ends), ElementsAre(1, 2));
  each = Duration::zero();
  time += std::chrono::minutes(1);
  while (of_client_ != 0) {
    loop.in_next_round([] {});
    loop.run_round();
  }
  EXPECT_THAT(read(ends), ElementsAre(3, 4, 5, 6));
}

// A program may have 65,536 events move to a channel whose messages take long.
TEST_F(EventChannelTest, ManySlowEventsCountTogether) {
  auto ends = open();
  fill(ends);
  for (int i = 0; i < 256; ++i) send(ends, 7);
  TimePoint time = MonotonicClock::now();
  const auto clock = [&] { return time += UserTurns::kSlow * 2 / 5; };  // twice within a message
  EventLoop loop(EventLoop::kPerRound, clock, clock);
  const Ends slow = open(loop, kSlowUser);
  EXPECT_EQ(ends.channel->move_events(7, *slow.channel), 256u);
  EXPECT_GE(of_client_, 252u);
}

// Unread events are the agent's memory, and the program chooses the size of the socket's buffer.
TEST_F(EventChannelTest, ALargerBufferHoldsNoMoreEvents) {
  constexpr uint32_t kEvents = 1000;
  auto ends = open();
  set_option(agents_end_, SOL_SOCKET, SO_SNDBUF, 4 << 20);
  for (uint32_t id = 1; id <= kEvents; ++id) send(ends, id);
  const size_t unread = kEvents - of_client_;
  EXPECT_GT(unread, 16u);
  EXPECT_LE((unread - 1) * sizeof(protocol::CmEvent), size_t{EventChannel::kMaxUnreadBytes});
  EXPECT_EQ(ends.channel->taken(), 0u);
  std::vector<uint32_t> arrived;
  while (arrived.size() < kEvents) {
    const std::vector<uint32_t> next = read(ends);
    arrived.insert(arrived.end(), next.begin(), next.end());
  }
  std::vector<uint32_t> sent(kEvents);
  std::iota(sent.begin(), sent.end(), 1);
  EXPECT_EQ(arrived, sent);
  EXPECT_EQ(of_client_, 0u);
}

// The program may have the socket watched so often that epoll_ctl(2) takes long.
TEST_F(EventChannelTest, TheSocketIsWatchedInATurnOfTheUser) {
  auto ends = open();
  fill(ends);
  send(ends, 1);
  EXPECT_FALSE(is_watched(agents_end_));
  while (!is_watched(agents_end_)) {
    const bool has_turn = loop_.has_work_for(::geteuid());
    loop_.run_round();
    EXPECT_TRUE(has_turn || !is_watched(agents_end_));
  }
  EXPECT_THAT(read(ends), ElementsAre(1));
}

TEST_F(EventChannelTest, WhatWaitsArrivesInItsOrder) {
  auto ends = open();
  fill(ends);
  for (const uint32_t id : {3, 1, 2, 1}) send(ends, id);
  EXPECT_EQ(of_client_, 4u);
  EXPECT_THAT(read(ends), ElementsAre(3, 1, 2, 1));
  EXPECT_EQ(of_client_, 0u);
  EXPECT_EQ(of_users_.of_all(), 0u);
}

TEST_F(EventChannelTest, WhatIsDroppedDoesNotArrive) {
  auto ends = open();
  fill(ends);
  for (const uint32_t id : {3, 1, 2, 1}) send(ends, id);
  EXPECT_EQ(ends.channel->drop_events(1), 2u);
  EXPECT_EQ(ends.channel->drop_events(1), 0u);
  EXPECT_EQ(of_client_, 2u);
  EXPECT_THAT(read(ends), ElementsAre(3, 2));
}

TEST_F(EventChannelTest, AListenerTakesItsRequestsAlong) {
  auto ends = open();
  auto other = open();
  fill(ends);
  send(ends, 7);
  send(ends, 100, 7);
  send(ends, 8);
  send(ends, 7);
  ends.channel->move_events(7, *other.channel);
  EXPECT_THAT(read(ends), ElementsAre(8));
  EXPECT_THAT(read(other), ElementsAre(7, 100, 7));
}

TEST_F(EventChannelTest, MovesAndDropsTheOldestFirstInPieces) {
  auto ends = open();
  auto other = open();
  fill(ends);
  send(ends, 7);
  send(ends, 100, 7);
  send(ends, 8);
  send(ends, 101, 7);
  send(ends, 7);
  EXPECT_EQ(ends.channel->move_events(7, *other.channel, 3), 3u);
  send(ends, 102, 7);
  EXPECT_EQ(ends.channel->move_events(7, *other.channel, 3), 2u);
  EXPECT_THAT(read(other), ElementsAre(7, 100, 101, 7, 102));
  for (int i = 0; i < 3; ++i) send(ends, 9);
  EXPECT_EQ(ends.channel->drop_events(9, 2), 2u);
  EXPECT_THAT(read(ends), ElementsAre(8, 9));
}

TEST_F(EventChannelTest, TheRequestsOfAListenerAreNotItsOwn) {
  auto ends = open();
  auto other = open();
  fill(ends);
  send(ends, 100, 7);
  EXPECT_EQ(ends.channel->drop_events(7), 0u);
  ends.channel->move_events(100, *other.channel);
  EXPECT_THAT(read(other), IsEmpty());
  EXPECT_EQ(ends.channel->drop_events(100), 1u);
}

// A program that reads no events may destroy its identifiers one by one.
TEST_F(EventChannelTest, OneAmongManyIsDroppedInNoTime) {
  constexpr uint32_t kMany = 20'000;
  auto ends = open();
  fill(ends);
  for (uint32_t id = 1; id <= kMany; ++id) send(ends, id);
  const TimePoint began = MonotonicClock::now();
  for (uint32_t id = 1; id <= kMany; ++id) ASSERT_EQ(ends.channel->drop_events(id), 1u);
  EXPECT_LT(MonotonicClock::now() - began, std::chrono::seconds(3));
}

}  // namespace
}  // namespace verbena::agent
