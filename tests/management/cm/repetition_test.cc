// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "management/cm/parameters.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

uint64_t count(const Counters::ByMessage& counter, MessageType type) {
  return counter[static_cast<size_t>(type)];
}

// A REQ is sent 1 + max_cm_retries times. Each waits for twice the packet life time plus the peer's response
// timeout.
TEST(Repetition, OfAReqEndsWithUnreachableAndATimeoutRej) {
  Pair pair;
  const auto id = pair.a.manager.connect(pair.a.parameters_to(pair.b), 5, pair.now);
  const Duration each = 2 * time_of(18) + time_of(20);
  EXPECT_EQ(pair.a.manager.deadline(), pair.now + each);
  const Mad first = pair.a.take().mad;
  for (int i = 0; i < 15; ++i) {
    pair.a.manager.on_timer(pair.a.manager.deadline());
    EXPECT_EQ(pair.a.take().mad, first);
  }
  EXPECT_TRUE(pair.a.heard.empty());
  EXPECT_EQ(pair.a.manager.deadline(), pair.now + 16 * each);
  pair.a.manager.on_timer(pair.now + 16 * each);
  const Rej rej = pair.a.take_as<Rej>();
  EXPECT_TRUE(rej.is(RejReason::kTimeout));
  EXPECT_EQ(rej.local_id, *id);
  EXPECT_EQ(rej.remote_id, 0u);
  EXPECT_EQ(rej.ari_length, 8);
  EXPECT_EQ(load_be<uint64_t>(rej.ari.data()), 0x1001u);
  ASSERT_EQ(pair.a.heard.size(), 1u);
  EXPECT_EQ(pair.a.last().heard, Heard::kUnreachable);
  EXPECT_EQ(static_cast<MessageType>(pair.a.last().reason), MessageType::kReq);
  EXPECT_EQ(pair.a.state(*id), State::kIdle);
  EXPECT_EQ(count(pair.a.manager.counters().retransmitted, MessageType::kReq), 15u);
  EXPECT_EQ(count(pair.a.manager.counters().sent, MessageType::kReq), 16u);
  EXPECT_EQ(count(pair.a.manager.counters().timed_out, MessageType::kReq), 1u);
  ASSERT_TRUE(pair.a.manager.destroy(*id, pair.now));
  EXPECT_EQ(pair.a.manager.size(), 0u);
  EXPECT_TRUE(pair.a.sent.empty());
}

TEST(Repetition, OfARepEndsWithUnreachableAndThePeerHearsOfIt) {
  HalfOpen pair;
  pair.reply();
  ASSERT_TRUE(pair.a.manager.ready(pair.active, {}, pair.now));
  pair.a.sent.clear();
  while (pair.b.heard.size() == 1) {
    pair.b.manager.on_timer(pair.b.manager.deadline());
    if (pair.b.heard.size() == 1) pair.b.sent.clear();
  }
  EXPECT_EQ(pair.b.last().heard, Heard::kUnreachable);
  EXPECT_EQ(static_cast<MessageType>(pair.b.last().reason), MessageType::kRep);
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.a.last().reason, static_cast<uint16_t>(RejReason::kTimeout));
  EXPECT_EQ(pair.a.state(pair.active), State::kTimeWait);
}

// IBTA 12.9.8.7: the local response timeout in the REQ is how long its sender takes to answer.
TEST(Repetition, OfARepWaitsAsLongAsTheReqSays) {
  Pair pair;
  auto parameters = pair.a.parameters_to(pair.b);
  parameters.local_response_timeout = 17;
  parameters.max_cm_retries = 2;
  ASSERT_TRUE(pair.a.manager.connect(parameters, 5, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.reply(pair.b.last().id, pair.b.reply_parameters(), pair.now));
  EXPECT_EQ(pair.b.manager.deadline(), pair.now + time_of(17));
  pair.pass_in_silence(3 * time_of(17));
  EXPECT_EQ(pair.b.last().heard, Heard::kUnreachable);
}

TEST(Repetition, IsBoundedWhateverThePeerSays) {
  ManagerConfig config;
  config.longest_response_timeout = 21;
  Pair pair(config);
  auto parameters = pair.a.parameters_to(pair.b);
  parameters.local_response_timeout = 31;  // 2.5 hours
  ASSERT_TRUE(pair.a.manager.connect(parameters, 5, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.reply(pair.b.last().id, pair.b.reply_parameters(), pair.now));
  EXPECT_EQ(pair.b.manager.deadline(), pair.now + time_of(21));
}

TEST(Repetition, IsBoundedWhateverTheOwnerSays) {
  ManagerConfig config;
  config.longest_response_timeout = 21;
  Pair pair(config);
  auto parameters = pair.a.parameters_to(pair.b);
  parameters.packet_life_time = parameters.remote_response_timeout = 31;
  ASSERT_TRUE(pair.a.manager.connect(parameters, 5, pair.now));
  EXPECT_EQ(pair.a.manager.deadline(), pair.now + 3 * time_of(21));
  SidrRequest request;
  request.path = pair.b.path_to(pair.a);
  request.packet_life_time = request.remote_response_timeout = 31;
  ASSERT_TRUE(pair.b.manager.sidr_request(request, 5, pair.now));
  EXPECT_EQ(pair.b.manager.deadline(), pair.now + 3 * time_of(21));
}

TEST(Repetition, IsBoundedInTimeWaitWhateverThePeerSays) {
  ManagerConfig config;
  config.longest_response_timeout = 21;
  Pair pair(config);
  auto parameters = pair.a.parameters_to(pair.b);
  parameters.packet_life_time = 30;
  const LocalId active = *pair.a.manager.connect(parameters, 5, pair.now);
  pair.carry();
  const LocalId passive = pair.b.last().id;
  ASSERT_TRUE(pair.b.manager.reply(passive, pair.b.reply_parameters(), pair.now));
  pair.carry();
  ASSERT_TRUE(pair.a.manager.ready(active, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.manager.info(passive)->ack_timeout, 31);
  ASSERT_TRUE(pair.b.manager.disconnect(passive, {}, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.a.manager.confirm_disconnect(active, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.manager.deadline(), pair.now + time_of(21));
}

TEST(Repetition, OfAReqThatTheOwnerHasNotAnsweredIsCountedAndNothingElse) {
  Pair pair;
  ASSERT_TRUE(pair.a.manager.connect(pair.a.parameters_to(pair.b), 5, pair.now));
  const Datagram req = pair.a.take();
  pair.b.receive(req, pair.now);
  pair.b.receive(req, pair.now);
  EXPECT_EQ(pair.b.heard.size(), 1u);
  EXPECT_TRUE(pair.b.sent.empty());
  EXPECT_EQ(pair.b.manager.size(), 1u);
  EXPECT_EQ(count(pair.b.manager.counters().duplicates, MessageType::kReq), 1u);
}

// An MRA that is sent only in answer to a duplicate, as the kernel's rdma_cm requests it
// (IB_CM_MRA_FLAG_DELAY).
TEST(Repetition, OfARequestIsAnsweredByAnMraThatWasHeldBack) {
  Pair pair;
  const auto id = pair.a.manager.connect(pair.a.parameters_to(pair.b), 5, pair.now);
  const Datagram req = pair.a.take();
  pair.b.receive(req, pair.now);
  const LocalId passive = pair.b.last().id;
  ASSERT_TRUE(pair.b.manager.delay(passive, 24, Manager::MraTime::kOnDuplicate, {}, pair.now));
  EXPECT_TRUE(pair.b.sent.empty());
  EXPECT_EQ(pair.b.state(passive), State::kMraReqSent);
  pair.b.receive(req, pair.now);
  const Mra mra = *decode<Mra>(pair.b.sent.front().mad.bytes);
  EXPECT_EQ(mra.delayed, Answered::kReq);
  EXPECT_EQ(mra.service_timeout, 24);
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kDelay);
  EXPECT_EQ(pair.a.state(*id), State::kMraReqReceived);
  EXPECT_EQ(pair.a.manager.deadline(), pair.now + time_of(24) + time_of(19));
  pair.b.receive(req, pair.now);
  pair.carry();
  EXPECT_EQ(count(pair.a.manager.counters().duplicates, MessageType::kMra), 1u);
  ASSERT_TRUE(pair.b.manager.reply(passive, pair.b.reply_parameters(), pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kReply);
}

TEST(Repetition, OfARepIsAnsweredByAnMra) {
  HalfOpen pair;
  ASSERT_TRUE(pair.b.manager.reply(pair.passive, pair.b.reply_parameters(), pair.now));
  const Datagram rep = pair.b.take();
  pair.a.receive(rep, pair.now);
  pair.a.receive(rep, pair.now);  // there is no answer yet
  EXPECT_TRUE(pair.a.sent.empty());
  ASSERT_TRUE(pair.a.manager.delay(pair.active, 22, Manager::MraTime::kNow, {}, pair.now));
  EXPECT_EQ(pair.a.state(pair.active), State::kMraRepSent);
  pair.carry();
  EXPECT_EQ(pair.b.state(pair.passive), State::kMraRepReceived);
  EXPECT_EQ(pair.b.manager.deadline(), pair.now + time_of(22) + time_of(19));
  pair.a.receive(rep, pair.now);
  EXPECT_EQ(pair.a.take().type(), MessageType::kMra);
  ASSERT_TRUE(pair.a.manager.ready(pair.active, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.state(pair.passive), State::kEstablished);
}

TEST(Repetition, OfARepIsAnsweredByTheSameRtu) {
  HalfOpen pair;
  ASSERT_TRUE(pair.b.manager.reply(pair.passive, pair.b.reply_parameters(), pair.now));
  const Datagram rep = pair.b.take();
  pair.a.receive(rep, pair.now);
  const std::byte data[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(pair.a.manager.ready(pair.active, data, pair.now));
  const Datagram rtu = pair.a.take();
  pair.a.receive(rep, pair.now);
  EXPECT_EQ(pair.a.take().mad, rtu.mad);
  EXPECT_EQ(pair.a.heard.size(), 1u);
  EXPECT_EQ(count(pair.a.manager.counters().duplicates, MessageType::kRep), 1u);
}

// The restarted manager does not know the private data of its predecessor's RTU.
TEST(Repetition, OfARepIsAnsweredByAnRtuAfterARestart) {
  HalfOpen pair;
  ASSERT_TRUE(pair.b.manager.reply(pair.passive, pair.b.reply_parameters(), pair.now));
  const Datagram rep = pair.b.take();
  pair.a.receive(rep, pair.now);
  ASSERT_TRUE(pair.a.manager.ready(pair.active, {}, pair.now));
  pair.a.sent.clear();  // the RTU is lost
  const ConnectionInfo agreed = *pair.a.manager.info(pair.active);
  ASSERT_TRUE(pair.a.manager.forget(pair.active));
  ASSERT_TRUE(pair.a.manager.restore(agreed, 5, pair.now));
  pair.a.receive(rep, pair.now);
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kReady);
}

// The REP is lost. A repeated REQ brings it again before the REP's own timer does.
TEST(Repetition, OfARequestIsAnsweredByTheSameRep) {
  Pair pair;
  ASSERT_TRUE(pair.a.manager.connect(pair.a.parameters_to(pair.b), 5, pair.now));
  const Datagram req = pair.a.take();
  pair.b.receive(req, pair.now);
  ASSERT_TRUE(pair.b.manager.reply(pair.b.last().id, pair.b.reply_parameters(), pair.now));
  const Datagram rep = pair.b.take();
  const TimePoint deadline = pair.b.manager.deadline();
  pair.b.receive(req, pair.now);
  EXPECT_EQ(pair.b.take().mad, rep.mad);
  EXPECT_EQ(pair.b.manager.deadline(), deadline);
}

TEST(Repetition, OfARequestIsAnsweredByTheSameRejForAWhile) {
  Pair pair;
  ASSERT_TRUE(pair.a.manager.connect(pair.a.parameters_to(pair.b), 5, pair.now));
  const Datagram req = pair.a.take();
  pair.b.receive(req, pair.now);
  const LocalId passive = pair.b.last().id;
  ASSERT_TRUE(pair.b.manager.reject(passive, {}, pair.now));
  const Datagram rej = pair.b.take();
  ASSERT_TRUE(pair.b.manager.destroy(passive, pair.now));
  EXPECT_EQ(pair.b.manager.info(passive).error(), Error{ENOENT});
  pair.b.receive(req, pair.now + seconds(10));
  EXPECT_EQ(pair.b.take().mad, rej.mad);
  EXPECT_EQ(pair.b.heard.size(), 1u);
  pair.b.manager.on_timer(pair.now + minutes(1));
  EXPECT_EQ(pair.b.manager.size(), 0u);
  EXPECT_EQ(pair.b.manager.waiting(), 0u);
}

TEST(Repetition, OfARepIsAnsweredByARejWhenTheConnectionIsForgotten) {
  HalfOpen pair;
  ASSERT_TRUE(pair.a.manager.destroy(pair.active, pair.now));
  pair.a.sent.clear();  // the REJ is lost
  pair.reply();
  EXPECT_EQ(pair.b.last().heard, Heard::kRejected);
  EXPECT_EQ(pair.b.last().reason, static_cast<uint16_t>(RejReason::kInvalidCommunicationId));
}

TEST(Repetition, OfADreqIsAnsweredByTheSameDrepAlsoFromTimeWait) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  const Datagram dreq = pair.a.take();
  pair.b.receive(dreq, pair.now);
  pair.b.receive(dreq, pair.now);  // the owner has not answered yet
  EXPECT_TRUE(pair.b.sent.empty());
  ASSERT_TRUE(pair.b.manager.confirm_disconnect(ids.b, {}, pair.now));
  const Datagram drep = pair.b.take();
  EXPECT_EQ(pair.b.state(ids.b), State::kTimeWait);
  pair.b.receive(dreq, pair.now);
  EXPECT_EQ(pair.b.take().mad, drep.mad);
  EXPECT_EQ(count(pair.b.manager.counters().duplicates, MessageType::kDreq), 2u);
}

// Linux: cm_issue_drep().
TEST(Repetition, OfADreqIsAnsweredEvenIfTheConnectionIsLongForgotten) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.b.manager.forget(ids.b));
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kDisconnected);
  EXPECT_TRUE(pair.a.last().has_drep);
  EXPECT_EQ(pair.b.manager.counters().of(DropReason::kUnknownConnection), 1u);
}

TEST(Repetition, OfADreqEndsWithDisconnectedAndTimeWait) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  pair.pass_in_silence(minutes(2));
  ASSERT_GE(pair.a.heard.size(), 2u);
  const Event& disconnected = pair.a.heard[pair.a.heard.size() - 2];
  EXPECT_EQ(disconnected.heard, Heard::kDisconnected);
  EXPECT_FALSE(disconnected.has_drep);
  EXPECT_EQ(pair.a.last().heard, Heard::kTimeWaitExit);
  EXPECT_EQ(count(pair.a.manager.counters().sent, MessageType::kDreq), 16u);
}

TEST(Repetition, OfAnRtuThatComesTooLateIsAnsweredByTheRej) {
  HalfOpen pair;
  pair.reply();
  ASSERT_TRUE(pair.a.manager.ready(pair.active, {}, pair.now));
  const Datagram rtu = pair.a.take();
  ASSERT_TRUE(pair.b.manager.destroy(pair.passive, pair.now));
  pair.b.sent.clear();  // the message is lost
  pair.b.receive(rtu, pair.now);
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kRejected);
}

// However many there are of one account, they delay no other.
TEST(Timers, OfAnAccountRunOnTheirOwn) {
  Pair pair;
  ConnectRequest request = pair.a.parameters_to(pair.b);
  for (const uint32_t account : {1000u, 1000u, 1001u}) {
    request.account = account;
    ASSERT_TRUE(pair.a.manager.connect(request, account, pair.now));
  }
  Manager& manager = pair.a.manager;
  const TimePoint first = manager.deadline();
  EXPECT_EQ(manager.deadline(1000), first);
  EXPECT_EQ(manager.deadline(1001), first);
  EXPECT_EQ(manager.deadline(1002), kNever);
  EXPECT_EQ(pair.a.timers,
            (std::vector<std::pair<uint32_t, TimePoint>>{{1000, first}, {1000, first}, {1001, first}}));
  pair.a.sent.clear();
  manager.on_timer(1001, first);
  manager.on_timer(1001, first);
  EXPECT_EQ(pair.a.sent.size(), 1u);
  EXPECT_GT(manager.deadline(1001), first);
  EXPECT_EQ(manager.deadline(), first);
  for (const size_t sent : {2u, 3u, 3u}) {
    manager.on_timer(1000, first);
    EXPECT_EQ(pair.a.sent.size(), sent) << "one at a time";
  }
}

}  // namespace
}  // namespace verbena::cm
