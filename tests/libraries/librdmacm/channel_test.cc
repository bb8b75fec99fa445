// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/channel.h"

#include <atomic>
#include <cerrno>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::rdmacm {
namespace {

using protocol::CmEvent;

CmEvent event_of(uint32_t id, uint32_t type = RDMA_CM_EVENT_ESTABLISHED) {
  CmEvent event{};
  event.magic = CmEvent::kMagic;
  event.id = id;
  event.type = type;
  return event;
}

// Whether a thread of ours waits in this system call, by proc(5).
bool waits_in(long call, pid_t task) {
  std::ifstream file("/proc/self/task/" + std::to_string(task) + "/syscall");
  long current = -1;
  return (file >> current) && current == call;
}

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Channel::open(1);
    ASSERT_TRUE(opened);
    channel_ = *opened;
    ASSERT_EQ(::fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
  }

  // Sends an event as the agent does.
  void send(const CmEvent& event) {
    ASSERT_EQ(::send(channel_->agents_end(), &event, sizeof event, MSG_DONTWAIT),
              static_cast<ssize_t>(sizeof event));
  }
  // Sends events of ascending identifiers until the socket is full.
  void fill(uint32_t& id) {
    for (CmEvent event = event_of(id);; event = event_of(++id)) {
      if (::send(channel_->agents_end(), &event, sizeof event, MSG_DONTWAIT) < 0) return;
    }
  }
  bool readable() const {
    pollfd entry{channel_->fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  std::vector<uint32_t> take(uint32_t id) {
    std::vector<uint32_t> types;
    for (const CmEvent& event : channel_->take([&](const CmEvent& each) { return each.id == id; })) {
      types.push_back(event.type);
    }
    return types;
  }
  // Reads all waiting events, each announced by poll(). Returns their identifiers in order.
  std::vector<uint32_t> read_all() {
    std::vector<uint32_t> ids;
    while (readable()) {
      const auto event = channel_->next();
      if (!event) {
        ADD_FAILURE() << "readable, and nothing to read";
        break;
      }
      ids.push_back(event->id);
    }
    EXPECT_EQ(channel_->next().error().code, EAGAIN);
    return ids;
  }

  std::shared_ptr<Channel> channel_;
};

using Ids = std::vector<uint32_t>;

TEST_F(ChannelTest, DeliversInOrder) {
  for (const uint32_t id : {1, 2, 3}) send(event_of(id));
  EXPECT_EQ(read_all(), Ids({1, 2, 3}));
}

TEST_F(ChannelTest, HonoursTheApplicationsNonblockingFlag) {
  const auto nothing = channel_->next();
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, EAGAIN);
}

TEST_F(ChannelTest, GivesUpOneIdentifiersEventsAndKeepsTheOrderOfTheOthers) {
  for (const uint32_t id : {1, 2, 1, 3, 2}) send(event_of(id));
  EXPECT_EQ(take(1).size(), 2U);
  send(event_of(4));
  EXPECT_EQ(read_all(), Ids({2, 3, 2, 4}));
}

TEST_F(ChannelTest, IsNotReadableWhenItsLastEventWasTakenOut) {
  send(event_of(1));
  EXPECT_TRUE(readable());
  take(1);
  EXPECT_FALSE(readable());
  EXPECT_EQ(read_all(), Ids());
}

TEST_F(ChannelTest, TakesOutEventsThatWereSetAside) {
  for (const uint32_t id : {1, 2, 3}) send(event_of(id));
  EXPECT_EQ(take(2).size(), 1U);
  send(event_of(1, RDMA_CM_EVENT_DISCONNECTED));
  EXPECT_EQ(take(1), Ids({RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED}));
  EXPECT_EQ(read_all(), Ids({3}));
}

TEST_F(ChannelTest, IgnoresWhatIsNoEvent) {
  CmEvent bad = event_of(1);
  bad.magic = 0;
  send(bad);
  bad = event_of(1);
  bad.parameters.private_length = 255;
  send(bad);
  const char word[] = "hello";
  ASSERT_EQ(::send(channel_->agents_end(), word, sizeof word, 0), static_cast<ssize_t>(sizeof word));
  send(event_of(2));
  EXPECT_EQ(channel_->next()->id, 2U);
}

// A foreign agent could send tokens that look like those of events that were set aside.
TEST_F(ChannelTest, SurvivesTokensThatAreNotItsOwn) {
  send(event_of(7, ~0u));
  send(event_of(1));
  send(event_of(2));
  EXPECT_TRUE(take(2).size() == 1);
  send(event_of(7, ~0u));
  send(event_of(3));
  EXPECT_EQ(channel_->next()->id, 1U);
  EXPECT_EQ(channel_->next()->id, 3U);
  EXPECT_EQ(channel_->next().error().code, EAGAIN);
}

TEST_F(ChannelTest, KeepsItsOwnEventsUntilThereIsRoom) {
  uint32_t id = 0;
  while (channel_->post(event_of(++id))) {
    ASSERT_LT(id, 100000U);
  }
  EXPECT_TRUE(channel_->waits_for_room());
  channel_->post(event_of(++id));
  Ids read;
  while (!channel_->flush()) read.push_back(channel_->next()->id);
  for (const uint32_t each : read_all()) read.push_back(each);
  Ids all(id);
  for (uint32_t i = 0; i < id; ++i) all[i] = i + 1;
  EXPECT_EQ(read, all);
}

// The agent takes what is gone from the socket for read. So it must not find room for more while a
// program takes some events out.
TEST_F(ChannelTest, HasNoRoomForMoreWhileOthersAreTakenOut) {
  uint32_t next = 1;
  fill(next);
  const uint32_t end = next;
  const auto fill_and_keep = [&](const CmEvent&) {
    fill(next);
    return false;
  };
  for (int times = 0; times < 10; ++times) channel_->take(fill_and_keep);
  EXPECT_EQ(next, end);
  Ids all(end - 1);
  std::iota(all.begin(), all.end(), 1U);
  EXPECT_EQ(read_all(), all);
}

TEST_F(ChannelTest, HasRoomForAsManyAsWereTakenOut) {
  uint32_t next = 1;
  fill(next);
  const uint32_t end = next;
  channel_->take([](const CmEvent&) { return false; });  // sets all aside
  EXPECT_EQ(channel_->take([](const CmEvent& event) { return event.id <= 5; }).size(), 5u);
  fill(next);
  EXPECT_EQ(next, end + 5);
  Ids rest(next - 6);
  std::iota(rest.begin(), rest.end(), 6U);
  EXPECT_EQ(read_all(), rest);
}

TEST_F(ChannelTest, HasNoEventsOnceClosed) {
  send(event_of(1));
  channel_->close();
  EXPECT_EQ(channel_->fd, -1);
  EXPECT_TRUE(take(1).empty());
  channel_->post(event_of(2));
}

TEST_F(ChannelTest, AnswersThatItIsClosed) {
  channel_->close();
  const auto closed = channel_->next();
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, EBADF);
}

// Otherwise the number could become that of another file, whose bytes the reader would take.
TEST_F(ChannelTest, KeepsItsNumberAsLongAsAThreadReads) {
  const int number = channel_->fd;
  ASSERT_EQ(::fcntl(number, F_SETFL, 0), 0);
  std::atomic<pid_t> task = 0;
  std::thread reader([&] {
    task = ::gettid();
    EXPECT_EQ(channel_->next().error().code, EBADF);
  });
  while (task == 0 || !waits_in(SYS_recvfrom, task)) std::this_thread::yield();
  channel_->close();
  EXPECT_NE(::fcntl(number, F_GETFD), -1);
  send(event_of(1));  // wakes the reader
  reader.join();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

}  // namespace
}  // namespace verbena::rdmacm
