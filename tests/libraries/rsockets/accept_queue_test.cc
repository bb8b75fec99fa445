// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/accept_queue.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace verbena::rsockets {
namespace {

struct FakeStream {};
using Queue = AcceptQueue<int, FakeStream>;

TEST(AcceptQueue, AnswersAsManyRequestsAsTheBacklogAllows) {
  Queue queue(2);
  for (int request = 1; request <= 3; ++request) EXPECT_TRUE(queue.add_request(request));
  EXPECT_EQ(queue.next_request(), 1);
  EXPECT_EQ(queue.next_request(), 2);
  EXPECT_EQ(queue.next_request(), std::nullopt);
  queue.given_up();
  EXPECT_EQ(queue.next_request(), 3);
}

TEST(AcceptQueue, StreamsTakeTheirPlaceUntilTheyAreAccepted) {
  Queue queue(1);
  queue.add_request(1);
  queue.add_request(2);
  ASSERT_TRUE(queue.next_request());
  const auto stream = std::make_shared<FakeStream>();
  ASSERT_TRUE(queue.opening(stream));
  EXPECT_EQ(queue.next_request(), std::nullopt);
  EXPECT_EQ(queue.accept(), nullptr) << "not opened yet";
  EXPECT_TRUE(queue.opened(stream.get()));
  EXPECT_EQ(queue.next_request(), std::nullopt);
  EXPECT_EQ(queue.accept(), stream);
  EXPECT_EQ(queue.next_request(), 2);
}

TEST(AcceptQueue, FailedStreamMakesRoom) {
  Queue queue(1);
  queue.add_request(1);
  queue.add_request(2);
  ASSERT_TRUE(queue.next_request());
  const auto stream = std::make_shared<FakeStream>();
  ASSERT_TRUE(queue.opening(stream));
  EXPECT_EQ(queue.failed(stream.get()), stream);
  EXPECT_EQ(queue.failed(stream.get()), nullptr);
  EXPECT_EQ(queue.next_request(), 2);
}

TEST(AcceptQueue, RequestCanBeWithdrawn) {
  Queue queue(1);
  queue.add_request(1);
  EXPECT_EQ(queue.withdraw([](int request) { return request == 2; }), std::nullopt);
  EXPECT_EQ(queue.withdraw([](int request) { return request == 1; }), 1);
  EXPECT_EQ(queue.next_request(), std::nullopt);
}

TEST(AcceptQueue, HoldsABoundedNumberOfRequests) {
  Queue queue(1);
  for (size_t i = 0; i < Queue::kMaxRequests; ++i) ASSERT_TRUE(queue.add_request(0));
  EXPECT_FALSE(queue.add_request(0));
}

constexpr TimePoint kStart{};
constexpr auto kKnown = [](int) { return true; };
constexpr auto kUnknown = [](int) { return false; };

TEST(AcceptQueue, RequestOfASilentSenderIsSetAsideAndTakesNoPlace) {
  Queue queue(1);
  queue.add_request(1);
  queue.add_request(2);
  ASSERT_EQ(queue.next_request(), 1);
  EXPECT_EQ(queue.set_aside(1, kStart), std::nullopt);
  EXPECT_EQ(queue.next_turn(kStart), kStart) << "others can be answered";
  EXPECT_EQ(queue.next_request(), 2);
  EXPECT_EQ(queue.next_turn(kStart), kStart + Queue::kFirstPause);
}

TEST(AcceptQueue, SenderThatIsFoundHasItsRequestBehindTheOthers) {
  Queue queue(9);
  queue.add_request(1);
  ASSERT_EQ(queue.next_request(), 1);
  queue.set_aside(1, kStart);
  queue.add_request(2);
  const auto too_early = [](int) -> bool { throw std::runtime_error("too early"); };
  EXPECT_EQ(queue.look_again(kStart, too_early), std::nullopt);
  EXPECT_EQ(queue.look_again(kStart + Queue::kFirstPause, kKnown), std::nullopt);
  EXPECT_EQ(queue.next_request(), 2);
  EXPECT_EQ(queue.next_request(), 1);
  EXPECT_EQ(queue.next_turn(kStart), kNever);
}

TEST(AcceptQueue, SilentSenderIsLookedForTenTimesInASecond) {
  Queue queue(9);
  queue.add_request(1);
  ASSERT_EQ(queue.next_request(), 1);
  queue.set_aside(1, kStart);
  TimePoint now = kStart;
  int looks = 0;
  for (std::optional<int> rejected; !rejected; ++looks) {
    ASSERT_LE(looks, 11);
    now = queue.next_turn(now);
    rejected = queue.look_again(now, kUnknown);
  }
  EXPECT_EQ(now, kStart + Queue::kSearchTime);
  EXPECT_EQ(looks, 10);
  EXPECT_EQ(queue.next_turn(now), kNever);
}

TEST(AcceptQueue, OneLookIsTakenInATurn) {
  Queue queue(9);
  for (const int request : {1, 2}) {
    queue.add_request(request);
    ASSERT_EQ(queue.next_request(), request);
    queue.set_aside(request, kStart);
  }
  const TimePoint later = kStart + Queue::kFirstPause;
  int looks = 0;
  queue.look_again(later, [&](int) { return ++looks < 0; });
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(queue.next_turn(later), later) << "the other has not been looked for";
}

TEST(AcceptQueue, OldestOfTooManySilentSendersGivesWay) {
  Queue queue(1);
  for (size_t i = 0; i <= Queue::kMaxRequests; ++i) {
    const int request = static_cast<int>(i);
    queue.add_request(request);
    ASSERT_EQ(queue.next_request(), request);
    const auto rejected = queue.set_aside(request, kStart + std::chrono::microseconds(i));
    EXPECT_EQ(rejected, i < Queue::kMaxRequests ? std::nullopt : std::optional(0));
  }
}

TEST(AcceptQueue, RequestThatIsSetAsideCanBeWithdrawn) {
  Queue queue(1);
  queue.add_request(1);
  ASSERT_EQ(queue.next_request(), 1);
  queue.set_aside(1, kStart);
  EXPECT_EQ(queue.withdraw([](int request) { return request == 1; }), 1);
  EXPECT_EQ(queue.next_turn(kStart), kNever);
}

TEST(AcceptQueue, ClosedOneGivesThoseAwayThatAreSetAside) {
  Queue queue(2);
  for (const int request : {1, 2}) {
    queue.add_request(request);
    ASSERT_EQ(queue.next_request(), request);
    if (request == 1) queue.set_aside(request, kStart);
  }
  EXPECT_EQ(queue.close().requests, std::deque<int>{1});
  EXPECT_EQ(queue.set_aside(2, kStart), 2);
  EXPECT_EQ(queue.look_again(kStart + Queue::kSearchTime, kKnown), std::nullopt);
}

TEST(AcceptQueue, ClosedOneGivesAllAwayAndTakesNothingIn) {
  Queue queue(2);
  queue.add_request(1);
  queue.add_request(2);
  ASSERT_TRUE(queue.next_request());
  const auto stream = std::make_shared<FakeStream>();
  ASSERT_TRUE(queue.opening(stream));
  const auto rest = queue.close();
  EXPECT_EQ(rest.requests.size(), 1u);
  EXPECT_EQ(rest.streams.size(), 1u);
  EXPECT_FALSE(queue.add_request(3));
  EXPECT_FALSE(queue.opening(stream));
}

}  // namespace
}  // namespace verbena::rsockets
