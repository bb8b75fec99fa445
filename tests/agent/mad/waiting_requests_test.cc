// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include <gtest/gtest.h>

#include "agent/mad/agents.h"

namespace verbena::agent {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{1000s};
constexpr uint8_t kClass = 0x32;

Correspondent at(uint8_t last_byte) {
  const uint8_t bytes[4] = {10, 0, 0, last_byte};
  Correspondent one;
  one.path.destination = roce::Address::from_ipv4(bytes);
  return one;
}

WaitingRequest request(uint64_t transaction, uint64_t port = 1) {
  WaitingRequest one;
  one.port = port;
  one.mad.set_u8(mad::kClassAt, kClass);
  one.mad.set(mad::kTransactionAt, transaction);
  one.to = at(2);
  one.timeout = 1s;
  return one;
}

mad::MadHeader answer(uint64_t transaction, uint8_t management_class = kClass) {
  mad::MadHeader header;
  header.transaction = transaction;
  header.management_class = management_class;
  header.method = mad::kMethodGet | mad::kMethodResponse;
  return header;
}

TEST(WaitingRequests, AreAnsweredOnceAndByWhomTheyWereSentTo) {
  WaitingRequests waiting;
  ASSERT_TRUE(waiting.add(request(7), kStart));
  EXPECT_FALSE(waiting.answered(answer(8), at(2)).has_value());
  EXPECT_FALSE(waiting.answered(answer(7), at(3)).has_value());
  EXPECT_FALSE(waiting.answered(answer(7, kClass + 1), at(2)).has_value());
  EXPECT_TRUE(waiting.answered(answer(7), at(2)).has_value());
  EXPECT_FALSE(waiting.answered(answer(7), at(2)).has_value());
  EXPECT_EQ(waiting.deadline(1), kNever);
}

// Requests that stay on the link have no address: another program's answer has another LID.
TEST(WaitingRequests, AreAnsweredOnTheLinkByTheirLid) {
  WaitingRequests waiting;
  WaitingRequest one = request(7);
  one.to = {.lid = 77, .path = {}};
  ASSERT_TRUE(waiting.add(one, kStart));
  EXPECT_FALSE(waiting.answered(answer(7), {.lid = 1, .path = {}}).has_value());
  EXPECT_TRUE(waiting.answered(answer(7), {.lid = 77, .path = {}}).has_value());
}

TEST(WaitingRequests, AreRepeatedAsOftenAsSaidAndThenGivenUp) {
  WaitingRequests waiting;
  WaitingRequest one = request(7);
  one.retries = 2;
  waiting.add(one, kStart);
  EXPECT_FALSE(waiting.take_due(1, kStart + 999ms).has_value());
  EXPECT_FALSE(waiting.take_due(1, kStart + 1s)->given_up);
  EXPECT_FALSE(waiting.take_due(1, kStart + 1s).has_value());
  EXPECT_FALSE(waiting.take_due(1, kStart + 2s)->given_up);
  EXPECT_TRUE(waiting.take_due(1, kStart + 3s)->given_up);
  EXPECT_EQ(waiting.deadline(1), kNever);
}

TEST(WaitingRequests, OfAPortAreDueOnTheirOwn) {
  WaitingRequests waiting;
  waiting.add(request(1, 1), kStart);
  waiting.add(request(2, 2), kStart + 1s);
  EXPECT_EQ(waiting.deadline(1), kStart + 1s);
  EXPECT_EQ(waiting.deadline(2), kStart + 2s);
  EXPECT_FALSE(waiting.take_due(2, kStart + 1s).has_value());
  EXPECT_EQ(waiting.take_due(2, kStart + 2s)->request.port, 2u);
  EXPECT_EQ(waiting.deadline(2), kNever);
  EXPECT_EQ(waiting.take_due(1, kStart + 2s)->request.port, 1u);
}

TEST(WaitingRequests, KnowATransactionOnce) {
  WaitingRequests waiting;
  EXPECT_TRUE(waiting.add(request(7), kStart));
  EXPECT_FALSE(waiting.add(request(7), kStart));
}

TEST(WaitingRequests, AreBoundedForEachPort) {
  WaitingRequests waiting;
  for (uint64_t i = 0; i < WaitingRequests::kMaxOfPort; ++i) {
    EXPECT_TRUE(waiting.has_room(1));
    waiting.add(request(i), kStart);
  }
  EXPECT_FALSE(waiting.has_room(1));
  EXPECT_TRUE(waiting.has_room(2));
  EXPECT_TRUE(waiting.answered(answer(0), at(2)).has_value());
  EXPECT_TRUE(waiting.has_room(1));
}

TEST(WaitingRequests, GoWithTheirPort) {
  WaitingRequests waiting;
  waiting.add(request(1), kStart);
  waiting.add(request(2, 2), kStart);
  waiting.remove_port(1);
  EXPECT_FALSE(waiting.answered(answer(1), at(2)).has_value());
  EXPECT_TRUE(waiting.answered(answer(2), at(2)).has_value());
}

}  // namespace
}  // namespace verbena::agent
