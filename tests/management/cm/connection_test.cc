// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

std::vector<std::byte> bytes_of(size_t size, uint8_t first) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

void expect_begins_with(const std::vector<uint8_t>& whole, const std::vector<std::byte>& head) {
  ASSERT_GE(whole.size(), head.size());
  EXPECT_EQ(std::memcmp(whole.data(), head.data(), head.size()), 0);
  for (size_t i = head.size(); i < whole.size(); ++i) EXPECT_EQ(whole[i], 0);
}

TEST(Connection, IsSetUpByReqRepAndRtu) {
  Pair pair;
  const auto id = pair.a.manager.connect(pair.a.parameters_to(pair.b), 5, pair.now);
  ASSERT_TRUE(id);
  EXPECT_EQ(pair.a.state(*id), State::kReqSent);
  pair.carry();
  ASSERT_EQ(pair.b.heard.size(), 1u);
  EXPECT_EQ(pair.b.last().heard, Heard::kRequest);
  EXPECT_EQ(pair.b.last().context, 77u);
  const LocalId passive = pair.b.last().id;
  EXPECT_EQ(pair.b.state(passive), State::kReqReceived);
  ASSERT_TRUE(pair.b.manager.reply(passive, pair.b.reply_parameters(), pair.now));
  EXPECT_EQ(pair.b.state(passive), State::kRepSent);
  pair.carry();
  ASSERT_EQ(pair.a.heard.size(), 1u);
  EXPECT_EQ(pair.a.last().heard, Heard::kReply);
  EXPECT_EQ(pair.a.last().context, 5u);
  EXPECT_EQ(pair.a.state(*id), State::kRepReceived);
  ASSERT_TRUE(pair.a.manager.ready(*id, {}, pair.now));
  EXPECT_EQ(pair.a.state(*id), State::kEstablished);
  pair.carry();
  ASSERT_EQ(pair.b.heard.size(), 2u);
  EXPECT_EQ(pair.b.last().heard, Heard::kReady);
  EXPECT_EQ(pair.b.state(passive), State::kEstablished);
  EXPECT_EQ(pair.a.manager.deadline(), kNever);
  EXPECT_EQ(pair.b.manager.deadline(), kNever);
  EXPECT_EQ(pair.b.manager.half_open(), 0u);
}

// The attributes that ib_cm_init_qp_attr() of the kernel gives to ibv_modify_qp().
TEST(Connection, TellsBothSidesWhatTheirQpsNeed) {
  Pair pair;
  const auto ids = pair.connect(100, 200);
  const auto active = pair.a.manager.info(ids.a);
  const auto passive = pair.b.manager.info(ids.b);
  ASSERT_TRUE(active && passive);
  EXPECT_TRUE(active->is_active);
  EXPECT_FALSE(passive->is_active);
  EXPECT_EQ(active->remote_id, ids.b);
  EXPECT_EQ(passive->remote_id, ids.a);
  EXPECT_EQ(active->local_qpn, 100u);
  EXPECT_EQ(active->remote_qpn, 200u);
  EXPECT_EQ(passive->local_qpn, 200u);
  EXPECT_EQ(passive->remote_qpn, 100u);
  EXPECT_EQ(active->receive_psn, 0x111111u);
  EXPECT_EQ(passive->send_psn, 0x111111u);
  EXPECT_EQ(active->send_psn, 0x222222u);
  EXPECT_EQ(passive->receive_psn, 0x222222u);
  EXPECT_EQ(active->ack_timeout, 19);
  EXPECT_EQ(passive->ack_timeout, 19);
  EXPECT_EQ(active->retry_count, 7);
  EXPECT_EQ(passive->retry_count, 7);
  EXPECT_EQ(active->rnr_retry_count, 5);   // from the REP
  EXPECT_EQ(passive->rnr_retry_count, 6);  // from the REQ
  EXPECT_EQ(active->initiator_depth, 2);   // the REP's responder resources
  EXPECT_EQ(active->responder_resources, 1);
  EXPECT_EQ(passive->initiator_depth, 1);
  EXPECT_EQ(passive->responder_resources, 2);
  EXPECT_EQ(active->path_mtu, 3);
  EXPECT_EQ(passive->path_mtu, 3);
  EXPECT_EQ(passive->path.source, address(2));
  EXPECT_EQ(passive->path.destination, address(1));
}

TEST(Connection, CarriesPrivateDataOfExactlyTheRoomThereIs) {
  Pair pair;
  auto parameters = pair.a.parameters_to(pair.b);
  const auto req_data = bytes_of(92, 1), rep_data = bytes_of(196, 2), rtu_data = bytes_of(224, 3),
             dreq_data = bytes_of(220, 4), drep_data = bytes_of(224, 5);
  ASSERT_TRUE(parameters.parameters.set_data(req_data));
  const auto id = pair.a.manager.connect(parameters, 0, pair.now);
  pair.carry();
  expect_begins_with(pair.b.last().private_data, req_data);
  const LocalId passive = pair.b.last().id;
  auto reply = pair.b.reply_parameters();
  ASSERT_TRUE(reply.parameters.set_data(rep_data));
  ASSERT_TRUE(pair.b.manager.reply(passive, reply, pair.now));
  pair.carry();
  expect_begins_with(pair.a.last().private_data, rep_data);
  ASSERT_TRUE(pair.a.manager.ready(*id, rtu_data, pair.now));
  pair.carry();
  expect_begins_with(pair.b.last().private_data, rtu_data);
  ASSERT_TRUE(pair.b.manager.disconnect(passive, dreq_data, pair.now));
  pair.carry();
  expect_begins_with(pair.a.last().private_data, dreq_data);
  ASSERT_TRUE(pair.a.manager.confirm_disconnect(*id, drep_data, pair.now));
  pair.carry();
  EXPECT_TRUE(pair.b.last().has_drep);
  expect_begins_with(pair.b.last().private_data, drep_data);
}

TEST(Connection, RefusesPrivateDataThatHasNoRoom) {
  Pair pair;
  const auto data = bytes_of(225, 0);
  const ConstBytes all(data);
  auto parameters = pair.a.parameters_to(pair.b);
  ASSERT_TRUE(parameters.parameters.set_data(all.first(93)));
  EXPECT_EQ(pair.a.manager.connect(parameters, 0, pair.now).error(), Error{EINVAL});
  EXPECT_EQ(pair.a.manager.size(), 0u);
  const auto id = pair.a.manager.connect(pair.a.parameters_to(pair.b), 0, pair.now);
  pair.carry();
  const LocalId passive = pair.b.last().id;
  auto reply = pair.b.reply_parameters();
  ASSERT_TRUE(reply.parameters.set_data(all.first(197)));
  EXPECT_EQ(pair.b.manager.reply(passive, reply, pair.now).error(), Error{EINVAL});
  RejectParameters rejection;
  rejection.private_data = all.first(149);
  EXPECT_EQ(pair.b.manager.reject(passive, rejection, pair.now).error(), Error{EINVAL});
  rejection = {};
  rejection.ari = all.first(73);
  EXPECT_EQ(pair.b.manager.reject(passive, rejection, pair.now).error(), Error{EINVAL});
  ASSERT_TRUE(pair.b.manager.reply(passive, pair.b.reply_parameters(), pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.manager.ready(*id, all.first(225), pair.now).error(), Error{EINVAL});
  ASSERT_TRUE(pair.a.manager.ready(*id, {}, pair.now));
  EXPECT_EQ(pair.a.manager.disconnect(*id, all.first(221), pair.now).error(), Error{EINVAL});
}

TEST(Connection, AnswersOperationsThatMakeNoSenseWithEinval) {
  Pair pair;
  const auto id = pair.a.manager.connect(pair.a.parameters_to(pair.b), 0, pair.now);
  Manager& manager = pair.a.manager;
  EXPECT_EQ(manager.reply(*id, pair.a.reply_parameters(), pair.now).error(), Error{EINVAL});
  EXPECT_EQ(manager.ready(*id, {}, pair.now).error(), Error{EINVAL});
  EXPECT_EQ(manager.establish(*id, pair.now).error(), Error{EINVAL});
  EXPECT_EQ(manager.disconnect(*id, {}, pair.now).error(), Error{EINVAL});
  EXPECT_EQ(manager.confirm_disconnect(*id, {}, pair.now).error(), Error{EINVAL});
  EXPECT_EQ(manager.sidr_reply(*id, {}, pair.now).error(), Error{EINVAL});
  EXPECT_EQ(manager.delay(*id, 20, Manager::MraTime::kNow, {}, pair.now).error(), Error{EINVAL});
  EXPECT_EQ(manager.destroy(*id + 1, pair.now).error(), Error{ENOENT});
  EXPECT_EQ(manager.info(*id + 1).error(), Error{ENOENT});
  auto xrc = pair.a.parameters_to(pair.b);
  xrc.qp_type = QpType::kXrcTarget;
  EXPECT_EQ(manager.connect(xrc, 0, pair.now).error(), Error{EINVAL});
}

// The responder's QP receives a packet although the RTU is lost: IBV_EVENT_COMM_EST. Linux: cm_establish().
TEST(Connection, IsEstablishedByWhatItsQpReceivesWhenTheRtuIsLost) {
  HalfOpen pair;
  pair.reply();
  ASSERT_TRUE(pair.a.manager.ready(pair.active, {}, pair.now));
  const Datagram rtu = pair.a.take();
  ASSERT_TRUE(pair.b.manager.establish(pair.passive, pair.now));
  EXPECT_EQ(pair.b.state(pair.passive), State::kEstablished);
  EXPECT_EQ(pair.b.manager.establish(pair.passive, pair.now).error(), Error{EISCONN});
  const size_t heard = pair.b.heard.size();
  pair.b.receive(rtu, pair.now);
  EXPECT_EQ(pair.b.heard.size(), heard);  // a duplicate
  EXPECT_EQ(pair.b.manager.deadline(), kNever);
}

TEST(Connection, OfXrcHasItsTargetWhereTheContextNumberIs) {
  Pair pair;
  auto parameters = pair.a.parameters_to(pair.b);
  parameters.qp_type = QpType::kXrcInitiator;
  const auto id = pair.a.manager.connect(parameters, 0, pair.now);
  const Req req = *decode<Req>(pair.a.sent.front().mad.bytes);
  EXPECT_TRUE(req.is_xrc());
  EXPECT_EQ(req.responder_resources, 0);
  EXPECT_EQ(req.retry_count, 0);
  pair.carry();
  const LocalId passive = pair.b.last().id;
  EXPECT_EQ(pair.b.manager.info(passive)->qp_type, QpType::kXrcTarget);
  ASSERT_TRUE(pair.b.manager.reply(passive, pair.b.reply_parameters(321), pair.now));
  const Rep rep = *decode<Rep>(pair.b.sent.front().mad.bytes);
  EXPECT_EQ(rep.local_qpn, 0u);
  EXPECT_EQ(rep.local_eecn, 321u);
  EXPECT_TRUE(rep.srq);
  pair.carry();
  EXPECT_EQ(pair.a.manager.info(*id)->remote_qpn, 321u);
}

// A connection without QPs carries private data only.
TEST(Connection, NeedsNoQp) {
  Pair pair;
  const auto one = pair.connect(0, 0), other = pair.connect(0, 0);
  EXPECT_EQ(pair.a.state(one.a), State::kEstablished);
  EXPECT_EQ(pair.a.state(other.a), State::kEstablished);
  ASSERT_TRUE(pair.a.manager.disconnect(one.a, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnectRequest);
  EXPECT_EQ(pair.b.last().id, one.b);
}

TEST(Connection, OfOneHostWithItselfHasTwoEnds) {
  Endpoint host(1);
  const TimePoint now{};
  const auto carry = [&] {
    while (!host.sent.empty()) {
      const Datagram datagram = host.sent.front();
      host.sent.pop_front();
      host.receive(datagram, now);
    }
  };
  const auto id = host.manager.connect(host.parameters_to(host, 100), 1, now);
  carry();
  const LocalId passive = host.last().id;
  ASSERT_TRUE(host.manager.reply(passive, host.reply_parameters(200), now));
  carry();
  ASSERT_TRUE(host.manager.ready(*id, {}, now));
  carry();
  EXPECT_EQ(host.state(*id), State::kEstablished);
  EXPECT_EQ(host.state(passive), State::kEstablished);
  ASSERT_TRUE(host.manager.disconnect(*id, {}, now));
  carry();
  EXPECT_EQ(host.state(passive), State::kDreqReceived);
  ASSERT_TRUE(host.manager.confirm_disconnect(passive, {}, now));
  carry();
  EXPECT_EQ(host.state(*id), State::kTimeWait);
}

TEST(Connection, DrawsIdsThatDoNotRepeat) {
  Pair pair;
  std::vector<LocalId> ids;
  for (int i = 0; i < 1000; ++i) {
    ids.push_back(*pair.a.manager.connect(pair.a.parameters_to(pair.b), 0, pair.now));
    ASSERT_TRUE(pair.a.manager.forget(ids.back()));
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
  Endpoint other(1, {}, 12);
  EXPECT_NE(*other.manager.connect(other.parameters_to(pair.b), 0, pair.now),
            *Endpoint(1, {}, 13).manager.connect(other.parameters_to(pair.b), 0, pair.now));
}

TEST(Connection, IsTakenUpUnderItsOldIdAfterARestart) {
  Pair pair;
  const auto ids = pair.connect();
  const ConnectionInfo agreed = *pair.a.manager.info(ids.a);
  ASSERT_TRUE(pair.a.manager.forget(ids.a));
  ASSERT_TRUE(pair.a.manager.restore(agreed, 9, pair.now));
  EXPECT_EQ(pair.a.manager.restore(agreed, 9, pair.now).error(), Error{EEXIST});
  EXPECT_EQ(pair.a.state(ids.a), State::kEstablished);

  ASSERT_TRUE(pair.b.manager.disconnect(ids.b, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kDisconnectRequest);
  EXPECT_EQ(pair.a.last().context, 9u);
  ASSERT_TRUE(pair.a.manager.confirm_disconnect(ids.a, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnected);
}

TEST(Connection, ThatWasTakenUpCanBeEnded) {
  Pair pair;
  const auto ids = pair.connect();
  const ConnectionInfo agreed = *pair.b.manager.info(ids.b);
  ASSERT_TRUE(pair.b.manager.forget(ids.b));
  ASSERT_TRUE(pair.b.manager.restore(agreed, 9, pair.now));
  ASSERT_TRUE(pair.b.manager.destroy(ids.b, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kDisconnectRequest);
}

}  // namespace
}  // namespace verbena::cm
