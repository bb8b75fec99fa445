// SPDX-License-Identifier: Apache-2.0
#include "adapter/queues/event_channel.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace verbena::queues {
namespace {

class EventChannelTest : public testing::Test {
 protected:
  bool readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
  }
  bool readable() { return readable(channel->fd()); }
  void set_nonblocking() {
    ASSERT_EQ(fcntl(channel->fd(), F_SETFL, fcntl(channel->fd(), F_GETFL) | O_NONBLOCK), 0);
  }
  EventSource* take() {
    EventSource* taken = nullptr;
    const auto result = channel->take([&](EventSource& source) { taken = &source; });
    error = result ? 0 : result.error().code;
    return taken;
  }

  std::unique_ptr<EventChannel> channel = *EventChannel::create();
  EventSource a, b;
  int error = 0;
};

TEST_F(EventChannelTest, IsReadableWhileEventsWait) {
  EXPECT_FALSE(readable());
  channel->post(a);
  channel->post(a);
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), &a);
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), &a);
  EXPECT_FALSE(readable());
}

TEST_F(EventChannelTest, ServesItsSourcesInTurn) {
  channel->post(a);
  channel->post(a);
  channel->post(b);
  EXPECT_EQ(take(), &a);
  EXPECT_EQ(take(), &b);
  EXPECT_EQ(take(), &a);
}

TEST_F(EventChannelTest, HonoursNonblockingWheneverItIsSet) {
  set_nonblocking();
  EXPECT_EQ(take(), nullptr);
  EXPECT_EQ(error, EAGAIN);
  channel->post(a);
  EXPECT_EQ(take(), &a);
  EXPECT_EQ(take(), nullptr);
  EXPECT_EQ(error, EAGAIN);
}

TEST_F(EventChannelTest, CanBeDuplicated) {
  const int copy = dup(channel->fd());
  channel->post(a);
  EXPECT_TRUE(readable(copy));
  EXPECT_EQ(take(), &a);
  EXPECT_FALSE(readable(copy));
  close(copy);
}

TEST_F(EventChannelTest, ForgetsWhatASourceHadPending) {
  for (int i = 0; i < 3; ++i) channel->post(a);
  channel->withdraw(a);
  EXPECT_FALSE(readable()) << "nobody may wait in take() for what is gone";
  channel->post(b);
  EXPECT_EQ(take(), &b);
  EXPECT_FALSE(readable());
}

TEST_F(EventChannelTest, KeepsTheOthersEventsWhenOneIsWithdrawn) {
  channel->post(a);
  channel->post(b);
  channel->post(a);
  channel->post(b);
  channel->withdraw(a);
  EXPECT_EQ(take(), &b);
  EXPECT_EQ(take(), &b);
  EXPECT_FALSE(readable());
}

TEST_F(EventChannelTest, TakesEventsOfASourceAgainAfterItWasWithdrawn) {
  channel->post(a);
  channel->withdraw(a);
  channel->post(a);
  EXPECT_EQ(take(), &a);
  EXPECT_FALSE(readable());
}

TEST_F(EventChannelTest, WakesWhoWaits) {
  std::atomic<EventSource*> got{nullptr};
  std::thread waiter([&] { got = take(); });
  channel->post(b);
  waiter.join();
  EXPECT_EQ(got, &b);
}

TEST_F(EventChannelTest, GivesEachEventToOneOfManyTakers) {
  constexpr int kTakers = 3;
  constexpr int kEvents = 2000;
  std::atomic<int> from_a{0};
  std::atomic<int> from_b{0};
  std::vector<std::thread> takers;
  for (int i = 0; i < kTakers; ++i) {
    takers.emplace_back([&] {
      for (int n = 0; n < kEvents; ++n) {
        const auto result = channel->take([&](EventSource& source) { ++(&source == &a ? from_a : from_b); });
        ASSERT_TRUE(result);
      }
    });
  }
  std::thread other([&] {
    for (int n = 0; n < kTakers * kEvents / 2; ++n) channel->post(b);
  });
  for (int n = 0; n < kTakers * kEvents / 2; ++n) channel->post(a);
  other.join();
  for (std::thread& t : takers) t.join();
  EXPECT_EQ(from_a, kTakers * kEvents / 2);
  EXPECT_EQ(from_b, kTakers * kEvents / 2);
  EXPECT_FALSE(readable());
}

TEST_F(EventChannelTest, EndsAfterTheLastEvent) {
  channel->post(a);
  channel->end();
  EXPECT_TRUE(channel->take([&](EventSource& source) { EXPECT_EQ(&source, &a); }));
  for (int i = 0; i < 3; ++i) {
    const auto taken = channel->take([](EventSource&) { FAIL(); });
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, EIO);
    EXPECT_TRUE(readable());
  }
}

// ---- waiting for a wake-up

class EventWaiterTest : public EventChannelTest {
 protected:
  EventSource* take_given() {
    EventSource* taken = nullptr;
    waiter->take([&](EventSource& source) { taken = &source; });
    return taken;
  }
  void post_by_another_thread(EventSource& source) {
    std::thread([&] { channel->post(source); }).join();
  }

  Bell bell = *Bell::make();
  std::optional<EventChannel::Waiter> waiter{std::in_place, *channel, bell};
};

TEST_F(EventWaiterTest, IsGivenTheNextEventWhichTheDescriptorDoesNotTell) {
  ASSERT_TRUE(waiter->has_the_place());
  EXPECT_FALSE(waiter->is_served());
  channel->post(a);
  EXPECT_TRUE(waiter->is_served());
  EXPECT_FALSE(readable());
  channel->post(b);
  EXPECT_TRUE(readable()) << "the second is anybody's";
  EXPECT_EQ(take_given(), &a);
  EXPECT_EQ(take_given(), nullptr);
  waiter.reset();
  EXPECT_EQ(take(), &b);
  EXPECT_FALSE(readable());
}

TEST_F(EventWaiterTest, IsRungByOthersAndNotByItself) {
  channel->post(a);
  EXPECT_FALSE(bell.hear());
  EXPECT_EQ(take_given(), &a);
  post_by_another_thread(a);
  EXPECT_TRUE(bell.hear());
  EXPECT_EQ(take_given(), &a);
}

TEST_F(EventWaiterTest, LeavesToTheDescriptorWhatItDoesNotTake) {
  channel->post(a);
  waiter.reset();
  EXPECT_TRUE(readable());
  EXPECT_EQ(take(), &a);
  channel->post(a);
  EXPECT_EQ(take(), &a);
}

TEST_F(EventWaiterTest, IsOneThreadAtATime) {
  std::thread([&] { EXPECT_FALSE(EventChannel::Waiter(*channel, bell).has_the_place()); }).join();
  channel->post(a);
  EXPECT_EQ(take_given(), &a) << "the place is still the first one's";
}

TEST_F(EventWaiterTest, IsNoneWhileTheDescriptorTellsOfAnEvent) {
  waiter.reset();
  channel->post(a);
  waiter.emplace(*channel, bell);
  EXPECT_FALSE(waiter->has_the_place());
  EXPECT_EQ(take(), &a);
}

TEST_F(EventWaiterTest, OfAThreadThatJumpedAwayIsReplacedByItsNext) {
  channel->post(a);
  EventChannel::Waiter next(*channel, bell);
  ASSERT_TRUE(next.has_the_place());
  EXPECT_TRUE(next.is_served());
}

TEST_F(EventWaiterTest, LosesWhatIsWithdrawn) {
  channel->post(a);
  channel->post(a);
  channel->withdraw(a);
  EXPECT_FALSE(waiter->is_served());
  EXPECT_FALSE(readable());
  channel->post(a);
  channel->post(b);
  channel->withdraw(a);
  EXPECT_TRUE(waiter->is_served());
  EXPECT_FALSE(readable());
  EXPECT_EQ(take_given(), &b);
}

TEST_F(EventWaiterTest, IsDismissedByAChannelThatGoesAway) {
  waiter.reset();
  std::atomic<bool> there{false};
  std::thread thread([&] {
    EventChannel::Waiter sleeper(*channel, bell);
    there = true;
    while (!sleeper.is_served()) EXPECT_TRUE(bell.await());
    EXPECT_FALSE(sleeper.take([](EventSource&) {}));
  });
  while (!there) std::this_thread::yield();
  EXPECT_TRUE(channel->dismiss_waiter(std::chrono::seconds(10)));
  thread.join();
}

TEST_F(EventWaiterTest, IsToldOfTheEnd) {
  channel->end();
  EXPECT_TRUE(waiter->is_served());
  EXPECT_TRUE(bell.hear());
}

}  // namespace
}  // namespace verbena::queues
