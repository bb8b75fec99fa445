// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/accept_queue.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace verbena::rsockets {
namespace {

struct FakeStream {};
using Queue = AcceptQueue<int, FakeStream>;
constexpr size_t kMost = 2 * ListenerShares::kLeast;  // streams that are not accepted

// The queue of a process's only listener.
struct Shares {
  ListenerShares shares{kMost};
};
struct OnlyQueue : private Shares, public Queue {
  explicit OnlyQueue(size_t backlog) : Queue(backlog, shares) {}
};

TEST(AcceptQueue, AnswersAsManyRequestsAsTheBacklogAllows) {
  OnlyQueue queue(2);
  for (int request = 1; request <= 3; ++request) EXPECT_TRUE(queue.add_request(request));
  EXPECT_EQ(queue.next_request(), 1);
  EXPECT_EQ(queue.next_request(), 2);
  EXPECT_EQ(queue.next_request(), std::nullopt);
  queue.given_up();
  EXPECT_EQ(queue.next_request(), 3);
}

using Streams = std::vector<std::shared_ptr<FakeStream>>;

// Queues a half-open stream, as if it were the answer to a request. Returns the streams to refuse for it.
Streams add_half_open(Queue& queue, const std::shared_ptr<FakeStream>& stream) {
  queue.add_request(0);
  EXPECT_TRUE(queue.next_request());
  return queue.opening(stream);
}

TEST(AcceptQueue, ReadyStreamsTakeTheirPlaceUntilTheyAreAccepted) {
  OnlyQueue queue(1);
  const auto stream = std::make_shared<FakeStream>();
  EXPECT_EQ(add_half_open(queue, stream), Streams{});
  queue.add_request(2);
  EXPECT_EQ(queue.accept(), nullptr) << "not opened yet";
  EXPECT_TRUE(queue.opened(stream.get()));
  EXPECT_EQ(queue.next_request(), std::nullopt);
  EXPECT_EQ(queue.accept(), stream);
  EXPECT_EQ(queue.next_request(), 2);
}

TEST(AcceptQueue, HalfOpenStreamTakesNoPlace) {
  OnlyQueue queue(1);
  const auto stream = std::make_shared<FakeStream>();
  add_half_open(queue, stream);
  queue.add_request(2);
  EXPECT_EQ(queue.next_request(), 2);
}

TEST(AcceptQueue, OldestOfTooManyHalfOpenStreamsGivesWay) {
  OnlyQueue queue(1);
  Streams streams(kMost);
  for (auto& stream : streams) {
    stream = std::make_shared<FakeStream>();
    ASSERT_EQ(add_half_open(queue, stream), Streams{});
  }
  EXPECT_EQ(add_half_open(queue, std::make_shared<FakeStream>()), Streams{streams[0]});
  EXPECT_FALSE(queue.opened(streams[0].get()));
  EXPECT_EQ(add_half_open(queue, std::make_shared<FakeStream>()), Streams{streams[1]});
}

// Each stream has a descriptor of the program, whichever listener it belongs to.
TEST(AcceptQueue, ListenersHaveEqualShares) {
  ListenerShares shares(kMost);
  Queue first(100, shares);
  Streams streams(kMost);
  for (auto& stream : streams) add_half_open(first, stream = std::make_shared<FakeStream>());
  Queue second(100, shares);
  const auto other = std::make_shared<FakeStream>();
  EXPECT_EQ(add_half_open(second, other), Streams{}) << "those of the first listener do not count";
  for (size_t i = 1; i < kMost / 2; ++i) {
    EXPECT_EQ(add_half_open(second, std::make_shared<FakeStream>()), Streams{});
  }
  EXPECT_EQ(add_half_open(second, std::make_shared<FakeStream>()), Streams{other});
}

TEST(AcceptQueue, GivesWayUntilTheSmallerShareHoldsWhenAnotherListenerCame) {
  ListenerShares shares(kMost);
  Queue first(100, shares);
  Streams streams(kMost);
  for (auto& stream : streams) add_half_open(first, stream = std::make_shared<FakeStream>());
  const Queue second(100, shares);
  const auto newcomer = std::make_shared<FakeStream>();
  EXPECT_EQ(add_half_open(first, newcomer), Streams(streams.begin(), streams.begin() + kMost / 2 + 1));
  EXPECT_TRUE(first.opened(newcomer.get()));
  EXPECT_TRUE(first.opened(streams.back().get()));
}

// A peer that confirms its connections must not take more descriptors than one that does not.
TEST(AcceptQueue, ReadyStreamsAndHalfOpenOnesShareTheListenersShare) {
  OnlyQueue queue(100);
  Streams streams(kMost);
  for (auto& stream : streams) add_half_open(queue, stream = std::make_shared<FakeStream>());
  EXPECT_TRUE(queue.opened(streams[0].get()));
  EXPECT_EQ(add_half_open(queue, std::make_shared<FakeStream>()), Streams{streams[1]});
  for (size_t i = 2; i < kMost; ++i) EXPECT_TRUE(queue.opened(streams[i].get()));
  const auto last = std::make_shared<FakeStream>();
  EXPECT_NE(add_half_open(queue, last), Streams{});
  EXPECT_TRUE(queue.opened(last.get()));
  queue.add_request(1);
  EXPECT_EQ(queue.next_request(), std::nullopt) << "though the backlog has places";
  EXPECT_NE(queue.accept(), nullptr);
  EXPECT_EQ(queue.next_request(), 1);
}

TEST(AcceptQueue, StreamsThatOpenBeyondTheBacklogAreReady) {
  OnlyQueue queue(1);
  const auto first = std::make_shared<FakeStream>(), second = std::make_shared<FakeStream>();
  for (const auto& stream : {first, second}) add_half_open(queue, stream);
  for (const auto& stream : {first, second}) EXPECT_TRUE(queue.opened(stream.get()));
  EXPECT_EQ(queue.accept(), first);
  EXPECT_EQ(queue.accept(), second);
}

TEST(AcceptQueue, FailedStreamIsGivenAwayOnce) {
  OnlyQueue queue(1);
  const auto stream = std::make_shared<FakeStream>();
  add_half_open(queue, stream);
  EXPECT_EQ(queue.failed(stream.get()), stream);
  EXPECT_EQ(queue.failed(stream.get()), nullptr);
}

TEST(AcceptQueue, RequestCanBeWithdrawn) {
  OnlyQueue queue(1);
  queue.add_request(1);
  EXPECT_EQ(queue.withdraw([](int request) { return request == 2; }), std::nullopt);
  EXPECT_EQ(queue.withdraw([](int request) { return request == 1; }), 1);
  EXPECT_EQ(queue.next_request(), std::nullopt);
}

TEST(AcceptQueue, HoldsABoundedNumberOfRequests) {
  OnlyQueue queue(1);
  for (size_t i = 0; i < Queue::kMaxRequests; ++i) ASSERT_TRUE(queue.add_request(0));
  EXPECT_FALSE(queue.add_request(0));
}

constexpr TimePoint kStart{};
constexpr auto kKnown = [](int) { return true; };
constexpr auto kUnknown = [](int) { return false; };

TEST(AcceptQueue, RequestOfASilentSenderIsSetAsideAndTakesNoPlace) {
  OnlyQueue queue(1);
  queue.add_request(1);
  queue.add_request(2);
  ASSERT_EQ(queue.next_request(), 1);
  EXPECT_EQ(queue.set_aside(1, kStart), std::nullopt);
  EXPECT_EQ(queue.next_turn(kStart), kStart) << "others can be answered";
  EXPECT_EQ(queue.next_request(), 2);
  EXPECT_EQ(queue.next_turn(kStart), kStart + Queue::kFirstPause);
}

TEST(AcceptQueue, SenderThatIsFoundHasItsRequestBehindTheOthers) {
  OnlyQueue queue(9);
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

// Otherwise a sender that answers late removed the limit.
TEST(AcceptQueue, IsFullAlsoWhileMoreThanTheMostWait) {
  OnlyQueue queue(1);
  queue.add_request(1);
  ASSERT_EQ(queue.next_request(), 1);
  ASSERT_EQ(queue.set_aside(1, kStart), std::nullopt);
  for (size_t i = 0; i < Queue::kMaxRequests; ++i) ASSERT_TRUE(queue.add_request(0));
  EXPECT_EQ(queue.look_again(kStart + Queue::kSearchTime, kKnown), std::nullopt);
  EXPECT_FALSE(queue.add_request(0));
  ASSERT_TRUE(queue.next_request());
  EXPECT_FALSE(queue.add_request(0)) << "as many as the limit wait";
}

TEST(AcceptQueue, SilentSenderIsLookedForTenTimesInASecond) {
  OnlyQueue queue(9);
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
  OnlyQueue queue(9);
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
  OnlyQueue queue(1);
  for (size_t i = 0; i <= Queue::kMaxRequests; ++i) {
    const int request = static_cast<int>(i);
    queue.add_request(request);
    ASSERT_EQ(queue.next_request(), request);
    const auto rejected = queue.set_aside(request, kStart + std::chrono::microseconds(i));
    EXPECT_EQ(rejected, i < Queue::kMaxRequests ? std::nullopt : std::optional(0));
  }
}

TEST(AcceptQueue, RequestThatIsSetAsideCanBeWithdrawn) {
  OnlyQueue queue(1);
  queue.add_request(1);
  ASSERT_EQ(queue.next_request(), 1);
  queue.set_aside(1, kStart);
  EXPECT_EQ(queue.withdraw([](int request) { return request == 1; }), 1);
  EXPECT_EQ(queue.next_turn(kStart), kNever);
}

TEST(AcceptQueue, ClosedOneGivesThoseAwayThatAreSetAside) {
  OnlyQueue queue(2);
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
  OnlyQueue queue(2);
  queue.add_request(1);
  queue.add_request(2);
  ASSERT_TRUE(queue.next_request());
  const auto stream = std::make_shared<FakeStream>();
  ASSERT_EQ(queue.opening(stream), Streams{});
  const auto rest = queue.close();
  EXPECT_EQ(rest.requests.size(), 1u);
  EXPECT_EQ(rest.streams.size(), 1u);
  EXPECT_FALSE(queue.add_request(3));
  EXPECT_EQ(queue.opening(stream), Streams{stream});
}

}  // namespace
}  // namespace verbena::rsockets
