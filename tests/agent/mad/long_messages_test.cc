// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/long_messages.h"

#include <functional>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace verbena::agent {
namespace {

using mad::Mad;

constexpr uint8_t kClass = 0x32;
constexpr uid_t kOwn = 1000, kUser = 2000;
constexpr uint32_t kDevice = 3;
constexpr uint64_t kPort = 11;

Correspondent peer(uint8_t last = 2) {
  const uint8_t bytes[4] = {10, 0, 0, last};
  Correspondent there;
  there.path.destination = roce::Address::from_ipv4(bytes);
  return there;
}

std::vector<std::byte> message(size_t bytes, uint64_t transaction = 5) {
  std::vector<std::byte> made(bytes);
  made[mad::kClassAt] = std::byte{kClass};
  made[mad::kMethodAt] = std::byte{mad::kMethodGet};
  store_be(&made[mad::kTransactionAt], transaction);
  return made;
}

LongMessages::Sending sending(uint32_t timeout_ms = 0, uint64_t port = kPort) {
  LongMessages::Sending one;
  one.port = port;
  one.user = kUser;
  one.header.timeout_ms = timeout_ms;
  one.device_index = kDevice;
  one.to = peer();
  return one;
}

class LongMessagesTest : public ::testing::Test, protected LongMessages::Host {
 protected:
  // Returns all segments that may be sent now.
  std::vector<Mad> take_sent() {
    size_t before = ~size_t{0};
    while (sent_.size() != before) {
      before = sent_.size();
      loop_.later([] {});
      loop_.in_next_round([] {});
      loop_.run_round();
    }
    return std::exchange(sent_, {});
  }
  void acknowledge(const Mad& segment, uint32_t window) {
    const Mad ack = mad::rmpp_ack(segment, segment.get<uint32_t>(mad::kRmppSegmentAt), window);
    EXPECT_TRUE(messages_.on_control(kDevice, ack, peer()));
  }

  EventLoop loop_;
  std::vector<Mad> sent_, replies_;
  std::function<void()> on_reply_;
  std::vector<bool> ends_;  // for each message, whether it has arrived
  int rooms_ = 0;
  LongMessages messages_{loop_, kOwn, *this};

 private:
  void send_segment(const LongMessages::Sending&, const Mad& mad) override { sent_.push_back(mad); }
  void reply(uint32_t, const Mad& mad, const Correspondent&) override {
    replies_.push_back(mad);
    if (on_reply_) on_reply_();
  }
  void abort(uint32_t, const roce::Address&, const Mad&) override {}
  void on_sent(const LongMessages::Sending&, const Mad&, bool arrived) override { ends_.push_back(arrived); }
  void resume_all() override { ++rooms_; }
};

TEST_F(LongMessagesTest, GoAsFarAsTheWindowAndEndWithTheLastAcknowledgement) {
  messages_.send(sending(), message(10'000));
  const auto first = take_sent();
  ASSERT_EQ(first.size(), 1U);
  acknowledge(first[0], 41);
  const auto more = take_sent();
  ASSERT_EQ(more.size(), 40U);
  acknowledge(more.back(), 100);
  const auto last = take_sent();
  ASSERT_EQ(last.size(), 6U);
  EXPECT_TRUE(ends_.empty());
  acknowledge(last.back(), 100);
  EXPECT_EQ(ends_, std::vector<bool>{true});
  EXPECT_EQ(rooms_, 1);
  EXPECT_TRUE(replies_.empty());
}

// The acknowledgement lets the other end begin its answer.
TEST_F(LongMessagesTest, TheEndOfARequestIsAcknowledgedInTurn) {
  messages_.send(sending(1000), message(200));
  const auto only = take_sent();
  ASSERT_EQ(only.size(), 1U);
  acknowledge(only[0], 1);
  ASSERT_EQ(replies_.size(), 1U);
  EXPECT_EQ(replies_[0].u8(mad::kMethodAt), mad::kMethodGet);
  EXPECT_EQ(replies_[0].get<uint32_t>(mad::kRmppSegmentAt), 0U);
  EXPECT_EQ(replies_[0].get<uint32_t>(mad::kRmppLengthAt), 1U);
}

// Where the other end is on this link, the reply is answered at once, even by the agent itself.
TEST_F(LongMessagesTest, MayBeAnsweredWithinAReply) {
  messages_.send(sending(1000), message(200));
  const Mad only = take_sent().at(0);
  on_reply_ = [&] {
    Mad answer = only;
    answer.set_u8(mad::kMethodAt, mad::kMethodGet | mad::kMethodResponse);
    EXPECT_FALSE(messages_.answered(kDevice, answer, peer())) << "it has ended before";
  };
  Mad control = mad::rmpp_ack(only, 1, 1);
  control.set_u8(mad::kRmppVersionAt, 0);
  EXPECT_TRUE(messages_.on_control(kDevice, control, peer()));
  EXPECT_EQ(replies_.size(), 1U);
  EXPECT_TRUE(messages_.has_room(kPort, kUser));
}

TEST_F(LongMessagesTest, AreHeardOfNoMoreWhenTheOtherEndStopsThem) {
  messages_.send(sending(), message(10'000));
  const auto first = take_sent();
  const Mad stop = mad::rmpp_refusal(first[0], mad::RmppType::kStop, mad::RmppStatus::kNoResources);
  EXPECT_TRUE(messages_.on_control(kDevice, stop, peer()));
  EXPECT_TRUE(ends_.empty());
  EXPECT_EQ(rooms_, 1);
  EXPECT_FALSE(messages_.on_control(kDevice, stop, peer()));
}

TEST_F(LongMessagesTest, ListenOnlyToThoseTheyAreFor) {
  messages_.send(sending(), message(10'000));
  const Mad ack = mad::rmpp_ack(take_sent()[0], 1, 10);
  EXPECT_FALSE(messages_.on_control(kDevice, ack, peer(3)));
  EXPECT_FALSE(messages_.on_control(kDevice + 1, ack, peer()));
  EXPECT_TRUE(messages_.on_control(kDevice, ack, peer()));
}

TEST_F(LongMessagesTest, AreUnderWayOnceWithATransaction) {
  messages_.send(sending(), message(300));
  messages_.send(sending(), message(300));
  EXPECT_EQ(take_sent().size(), 1U);
  messages_.send(sending(), message(300, 6));
  EXPECT_EQ(take_sent().size(), 1U);
}

TEST_F(LongMessagesTest, NeedNotArriveWhereTheAnswerDoes) {
  messages_.send(sending(1000), message(10'000));
  Mad answer = take_sent()[0];
  answer.set_u8(mad::kMethodAt, mad::kMethodGet | mad::kMethodResponse);
  EXPECT_FALSE(messages_.awaits(kDevice, answer, peer(3)));
  ASSERT_TRUE(messages_.awaits(kDevice, answer, peer()));
  EXPECT_EQ(messages_.answered(kDevice, answer, peer())->port, kPort);
  EXPECT_FALSE(messages_.awaits(kDevice, answer, peer()));
}

// So a user with many delays nobody.
TEST_F(LongMessagesTest, AreRepeatedAndGivenUpInTurnsOfTheirUser) {
  LongMessages::Sending once_more = sending(1);
  once_more.header.retries = 1;
  for (uint64_t transaction = 5; transaction < 10; ++transaction) {
    messages_.send(once_more, message(200, transaction));
  }
  const auto happened = [&] { return sent_.size() + ends_.size(); };
  while (ends_.size() < 5) {
    const size_t before = happened();
    const bool has_turn = loop_.has_work_for(kUser);
    loop_.run_round();
    EXPECT_TRUE(has_turn || happened() == before);
  }
  EXPECT_EQ(ends_, std::vector<bool>(5, false));
  EXPECT_EQ(sent_.size(), 10U);
}

// A user's ports share its room: one that waits goes on when another is closed.
TEST_F(LongMessagesTest, LeaveRoomForOtherPortsWhenTheirPortOrAgentIsGone) {
  messages_.send(sending(), message(10'000, 5));
  messages_.remove_agent(kPort, sending().header.agent + 1);
  EXPECT_EQ(rooms_, 0) << "it had none";
  messages_.remove_agent(kPort, sending().header.agent);
  EXPECT_EQ(rooms_, 1);
  messages_.send(sending(), message(10'000, 6));
  messages_.remove_port(kPort);
  EXPECT_EQ(rooms_, 2);
}

TEST_F(LongMessagesTest, AreBoundedForEachPortAndUser) {
  EXPECT_TRUE(messages_.has_room(kPort, kUser));
  messages_.send(sending(), message(mad::kMaxRmppBytes));
  EXPECT_FALSE(messages_.has_room(kPort, kUser));
  EXPECT_TRUE(messages_.has_room(kPort + 1, kUser));
  messages_.remove_port(kPort);
  EXPECT_TRUE(messages_.has_room(kPort, kUser));

  uint64_t port = kPort;
  while (messages_.has_room(++port, kUser)) {
    messages_.send(sending(0, port), message(mad::kMaxRmppBytes, port));
  }
  EXPECT_LE((port - kPort) * mad::kMaxRmppBytes, size_t{64} << 20);
  EXPECT_TRUE(messages_.has_room(port, kUser + 1));  // the share of another user is free
}

}  // namespace
}  // namespace verbena::agent
