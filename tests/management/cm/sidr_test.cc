// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "management/cm/parameters.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

SidrRequest request(const Endpoint& from, const Endpoint& to) {
  SidrRequest parameters;
  parameters.path = from.path_to(to);
  parameters.service_id = 0x01110000 + 7174;
  return parameters;
}

TEST(ServiceIdResolution, AnswersWithQpnAndQkey) {
  Pair pair;
  const std::byte data[2] = {std::byte{7}, std::byte{8}};
  auto parameters = request(pair.a, pair.b);
  ASSERT_TRUE(parameters.parameters.set_data(data));
  const auto id = pair.a.manager.sidr_request(parameters, 5, pair.now);
  ASSERT_TRUE(id);
  EXPECT_EQ(pair.a.state(*id), State::kSidrReqSent);
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kSidrRequest);
  EXPECT_EQ(pair.b.last().private_data[1], 8);
  EXPECT_EQ(pair.b.manager.half_open(), 1u);
  const LocalId passive = pair.b.last().id;
  SidrReply reply;
  reply.parameters.qpn = 321;
  reply.parameters.qkey = 0x11223344;
  ASSERT_TRUE(reply.parameters.set_data(data));
  ASSERT_TRUE(pair.b.manager.sidr_reply(passive, reply, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kSidrReply);
  EXPECT_EQ(pair.a.last().context, 5u);
  EXPECT_EQ(pair.a.last().number, 321u);
  EXPECT_EQ(pair.a.last().private_data[0], 7);
  EXPECT_EQ(pair.a.manager.deadline(), kNever);
  EXPECT_EQ(pair.b.manager.half_open(), 0u);
  EXPECT_EQ(pair.b.manager.sidr_reply(passive, reply, pair.now).error(), Error{EINVAL});
  ASSERT_TRUE(pair.a.manager.destroy(*id, pair.now));
  ASSERT_TRUE(pair.b.manager.destroy(passive, pair.now));
  pair.pass(std::chrono::minutes(1));
  EXPECT_EQ(pair.a.manager.size() + pair.b.manager.size(), 0u);
}

TEST(ServiceIdResolution, RepeatsItsReplyForARepeatedRequest) {
  Pair pair;
  ASSERT_TRUE(pair.a.manager.sidr_request(request(pair.a, pair.b), 5, pair.now));
  const Datagram req = pair.a.take();
  pair.b.receive(req, pair.now);
  pair.b.receive(req, pair.now);
  EXPECT_EQ(pair.b.heard.size(), 1u);
  EXPECT_TRUE(pair.b.sent.empty());
  ASSERT_TRUE(pair.b.manager.sidr_reply(pair.b.last().id, {}, pair.now));
  const Datagram rep = pair.b.take();
  ASSERT_TRUE(pair.b.manager.destroy(pair.b.last().id, pair.now));
  pair.b.receive(req, pair.now);
  EXPECT_EQ(pair.b.take().mad, rep.mad);
  EXPECT_EQ(pair.b.heard.size(), 1u);
}

TEST(ServiceIdResolution, EndsUnreachableWithoutAnAnswer) {
  Pair pair;
  auto parameters = request(pair.a, pair.b);
  parameters.max_cm_retries = 3;
  const auto id = pair.a.manager.sidr_request(parameters, 5, pair.now);
  pair.pass_in_silence(4 * (2 * time_of(18) + time_of(20)));
  EXPECT_EQ(pair.a.last().heard, Heard::kUnreachable);
  EXPECT_EQ(static_cast<MessageType>(pair.a.last().reason), MessageType::kSidrReq);
  EXPECT_EQ(pair.a.manager.counters().sent[static_cast<size_t>(MessageType::kSidrReq)], 4u);
  ASSERT_TRUE(pair.a.manager.destroy(*id, pair.now));
  EXPECT_EQ(pair.a.manager.size(), 0u);
}

TEST(ServiceIdResolution, IsRefusedWithAStatusAndNoState) {
  Pair pair;
  pair.b.admission = Admission::refuse(SidrStatus::kUnsupported);
  ASSERT_TRUE(pair.a.manager.sidr_request(request(pair.a, pair.b), 5, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kSidrReply);
  EXPECT_EQ(static_cast<SidrStatus>(pair.a.last().reason), SidrStatus::kUnsupported);
  EXPECT_EQ(pair.b.manager.size(), 0u);
}

TEST(ServiceIdResolution, IsRejectedByDestruction) {
  Pair pair;
  ASSERT_TRUE(pair.a.manager.sidr_request(request(pair.a, pair.b), 5, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.destroy(pair.b.last().id, pair.now));
  pair.carry();
  EXPECT_EQ(static_cast<SidrStatus>(pair.a.last().reason), SidrStatus::kRejected);
}

TEST(ServiceIdResolution, IsForgottenByDestruction) {
  Pair pair;
  const auto id = pair.a.manager.sidr_request(request(pair.a, pair.b), 5, pair.now);
  ASSERT_TRUE(pair.a.manager.destroy(*id, pair.now));
  EXPECT_EQ(pair.a.manager.size(), 0u);
  EXPECT_EQ(pair.a.manager.deadline(), kNever);
}

TEST(ServiceIdResolution, BeyondTheBacklogIsDroppedForThePeerToTryAgain) {
  Pair pair;
  pair.b.admission = Admission::ignore();
  ASSERT_TRUE(pair.a.manager.sidr_request(request(pair.a, pair.b), 5, pair.now));
  pair.carry();
  EXPECT_TRUE(pair.a.heard.empty());
  EXPECT_EQ(pair.b.manager.counters().of(DropReason::kNotAdmitted), 1u);
}

TEST(ServiceIdResolution, RefusesPrivateDataThatHasNoRoom) {
  Pair pair;
  const std::vector<std::byte> data(217);
  auto parameters = request(pair.a, pair.b);
  ASSERT_TRUE(parameters.parameters.set_data(data));
  EXPECT_EQ(pair.a.manager.sidr_request(parameters, 5, pair.now).error(), Error{EINVAL});
  ASSERT_TRUE(pair.a.manager.sidr_request(request(pair.a, pair.b), 5, pair.now));
  pair.carry();
  SidrReply reply;
  ASSERT_TRUE(reply.parameters.set_data(ConstBytes(data).first(137)));
  EXPECT_EQ(pair.b.manager.sidr_reply(pair.b.last().id, reply, pair.now).error(), Error{EINVAL});
  ASSERT_TRUE(reply.parameters.set_data({}));
  reply.info = ConstBytes(data).first(73);
  EXPECT_EQ(pair.b.manager.sidr_reply(pair.b.last().id, reply, pair.now).error(), Error{EINVAL});
}

TEST(ServiceIdResolution, HearsItsAnswerOnce) {
  Pair pair;
  ASSERT_TRUE(pair.a.manager.sidr_request(request(pair.a, pair.b), 5, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.sidr_reply(pair.b.last().id, {}, pair.now));
  const Datagram rep = pair.b.take();
  pair.a.receive(rep, pair.now);
  pair.a.receive(rep, pair.now);
  EXPECT_EQ(pair.a.heard.size(), 1u);
  EXPECT_EQ(pair.a.manager.counters().duplicates[static_cast<size_t>(MessageType::kSidrRep)], 1u);
}

TEST(ServiceIdResolution, TakesAnswersOnlyFromTheHostThatItAsked) {
  Pair pair;
  const auto id = pair.a.manager.sidr_request(request(pair.a, pair.b), 5, pair.now);
  SidrRep rep;
  rep.request_id = *id;
  Endpoint stranger(3);
  pair.a.receive({encode(rep, 0), stranger.path_to(pair.a)}, pair.now);
  EXPECT_TRUE(pair.a.heard.empty());
  EXPECT_EQ(pair.a.manager.counters().of(DropReason::kWrongPeer), 1u);
  pair.a.receive({encode(rep, 0), pair.b.path_to(pair.a)}, pair.now);
  EXPECT_EQ(pair.a.heard.size(), 1u);
}

}  // namespace
}  // namespace verbena::cm
