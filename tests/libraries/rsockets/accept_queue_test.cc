// SPDX-License-Identifier: Apache-2.0
#include "libraries/rsockets/accept_queue.h"

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
