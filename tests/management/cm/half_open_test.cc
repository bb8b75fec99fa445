// SPDX-License-Identifier: Apache-2.0
// Limits on requests that the owner has not answered: how many a peer may have, and for how long.
#include <gtest/gtest.h>

#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

TEST(HalfOpenConnections, AreCountedByAccount) {
  ManagerConfig config;
  config.max_half_open = 4;
  Pair pair(config);
  pair.b.admission = Admission::admit(77, 1000);
  for (uint32_t qpn = 100; qpn < 102; ++qpn) {
    EXPECT_TRUE(pair.b.manager.has_room_for(1000));
    ASSERT_TRUE(pair.a.manager.connect(pair.a.parameters_to(pair.b, qpn), 5, pair.now));
    pair.carry();
  }
  EXPECT_FALSE(pair.b.manager.has_room_for(1000));
  EXPECT_TRUE(pair.b.manager.has_room_for(1001));
  ASSERT_TRUE(pair.b.manager.reject(pair.b.last().id, {}, pair.now));
  EXPECT_TRUE(pair.b.manager.has_room_for(1000));
}

// The request ends after longest_silence even if our owner sent an MRA, whose timeout the peer honors for 69
// s.
TEST(HalfOpenConnections, EndWhenTheirSenderHasLongBeenSilent) {
  for (const bool delayed : {false, true}) {
    SCOPED_TRACE(delayed);
    HalfOpen pair;
    if (delayed) {
      ASSERT_TRUE(pair.b.manager.delay(pair.passive, 24, Manager::MraTime::kNow, {}, pair.now));
      pair.b.sent.clear();
    }
    const Duration patience = ManagerConfig{}.longest_silence;
    pair.pass_in_silence(patience - seconds(1));
    EXPECT_EQ(pair.b.manager.half_open(), 1u);
    pair.pass_in_silence(seconds(2));
    EXPECT_EQ(pair.b.manager.half_open(), 0u);
    EXPECT_EQ(pair.b.last().heard, Heard::kUnreachable);
    EXPECT_EQ(static_cast<MessageType>(pair.b.last().reason), MessageType::kReq);
    EXPECT_EQ(pair.b.manager.reply(pair.passive, pair.b.reply_parameters(), pair.now).error(), Error{EINVAL});
    ASSERT_TRUE(pair.b.manager.destroy(pair.passive, pair.now));
    EXPECT_EQ(pair.b.manager.size(), 0u);
  }
}

TEST(HalfOpenConnections, LastAsLongAsTheirSenderAsksAgain) {
  Pair pair;
  ASSERT_TRUE(pair.a.manager.connect(pair.a.parameters_to(pair.b), 5, pair.now));
  const Datagram req = pair.a.take();
  pair.b.receive(req, pair.now);
  ASSERT_TRUE(pair.b.manager.delay(pair.b.last().id, 24, Manager::MraTime::kOnDuplicate, {}, pair.now));
  for (int i = 0; i < 20; ++i) {
    pair.pass_in_silence(minutes(1));
    pair.b.receive(req, pair.now);
  }
  EXPECT_EQ(pair.b.heard.size(), 1u);
  EXPECT_TRUE(pair.b.manager.reply(pair.b.last().id, pair.b.reply_parameters(), pair.now));
}

// The request asks for 16 REPs, one every 17 s, and an MRA for one every 86 s.
TEST(HalfOpenConnections, DoNotLastAsLongAsTheirSenderLikes) {
  for (const bool delayed : {false, true}) {
    SCOPED_TRACE(delayed);
    Pair pair;
    ConnectRequest request = pair.a.parameters_to(pair.b);
    request.local_response_timeout = 31;
    const LocalId active = *pair.a.manager.connect(request, 5, pair.now);
    pair.carry();
    ASSERT_TRUE(pair.b.manager.reply(pair.b.last().id, pair.b.reply_parameters(), pair.now));
    if (delayed) {
      pair.carry();
      ASSERT_TRUE(pair.a.manager.delay(active, 31, Manager::MraTime::kNow, {}, pair.now));
      pair.carry();
      EXPECT_EQ(pair.b.last().heard, Heard::kDelay);
    }
    pair.pass_in_silence(seconds(60));
    EXPECT_EQ(pair.b.manager.half_open(), 1u);
    pair.pass_in_silence(delayed ? minutes(3) : seconds(30));
    EXPECT_EQ(pair.b.manager.half_open(), 0u);
    EXPECT_EQ(pair.b.last().heard, Heard::kUnreachable);
  }
}

// Any host can make a service of root's have as many as it may.
TEST(HalfOpenConnections, OfRootLeaveSomeToOthers) {
  ManagerConfig config;
  config.max_half_open = 16;
  Pair pair(config);
  pair.b.admission = Admission::admit(77, 0);
  for (uint32_t qpn = 100; pair.b.manager.has_room_for(0); ++qpn) {
    ASSERT_TRUE(pair.a.manager.connect(pair.a.parameters_to(pair.b, qpn), 5, pair.now));
    pair.carry();
  }
  EXPECT_EQ(pair.b.manager.half_open(), 14u);
  EXPECT_TRUE(pair.b.manager.has_room_for(1000));
}

TEST(HalfOpenConnections, OfWhichAServiceIsAskedEndAsWell) {
  Pair pair;
  SidrRequest request;
  request.path = pair.a.path_to(pair.b);
  ASSERT_TRUE(pair.a.manager.sidr_request(request, 5, pair.now));
  pair.b.receive(pair.a.take(), pair.now);
  EXPECT_EQ(pair.b.manager.half_open(), 1u);
  pair.pass_in_silence(ManagerConfig{}.longest_silence + seconds(1));
  EXPECT_EQ(pair.b.manager.half_open(), 0u);
  EXPECT_EQ(pair.b.last().heard, Heard::kUnreachable);
  EXPECT_EQ(static_cast<MessageType>(pair.b.last().reason), MessageType::kSidrReq);
}

}  // namespace
}  // namespace verbena::cm
