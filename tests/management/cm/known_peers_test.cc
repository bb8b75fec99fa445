// SPDX-License-Identifier: Apache-2.0
// Limits on what a manager sends to hosts that may never have asked for it: source addresses can be forged.
#include "management/cm/known_peers.h"

#include <set>

#include <gtest/gtest.h>

#include "management/cm/numbers.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr TimePoint kBegin{std::chrono::hours(1)};
constexpr uint64_t kSecret = 0x8f14e45fceea167a;

TEST(KnownPeers, KnowsWhoHasAnsweredForAWhile) {
  KnownPeers peers(kSecret);
  EXPECT_FALSE(peers.knows(address(1), kBegin));
  peers.has_answered(address(1), kBegin);
  EXPECT_TRUE(peers.knows(address(1), kBegin));
  EXPECT_FALSE(peers.knows(address(2), kBegin));
  EXPECT_FALSE(peers.knows(address(1), kBegin + KnownPeers::kMemory));
}

TEST(KnownPeers, LetsAStrangerBeSentTwoDatagramsASecond) {
  KnownPeers peers(kSecret);
  int sent = 0;
  for (int i = 0; i < 1000; ++i) sent += peers.may_send_unasked(address(1), kBegin + milliseconds(10) * i);
  EXPECT_EQ(sent, 20);
  EXPECT_TRUE(peers.may_send_unasked(address(2), kBegin)) << "another host";
  peers.has_answered(address(1), kBegin + seconds(10));
  EXPECT_TRUE(peers.may_send_unasked(address(1), kBegin + seconds(10)));
  EXPECT_TRUE(peers.may_send_unasked(address(1), kBegin + seconds(10)));
}

TEST(KnownPeers, AFloodOfStrangersDrivesOutNoneThatIsKnown) {
  KnownPeers peers(kSecret);
  peers.has_answered(address(1), kBegin);
  size_t sent = 0;
  for (uint32_t i = 0; i < 100000; ++i) {
    roce::Address stranger = address(2);
    store_be(&stranger.bytes[0], i + 1);
    sent += peers.may_send_unasked(stranger, kBegin);
  }
  EXPECT_TRUE(peers.knows(address(1), kBegin));
  EXPECT_LE(sent, 4096u);
  EXPECT_GE(sent, 2048u);
}

TEST(KnownPeers, RememberWhoSpeaksFromTheRocePortForAWhile) {
  KnownPeers peers(kSecret);
  peers.has_answered(address(1), kBegin);
  EXPECT_FALSE(peers.has_roce_port(address(1), kBegin));
  peers.has_answered_from_roce_port(address(1), kBegin);
  EXPECT_TRUE(peers.has_roce_port(address(1), kBegin));
  EXPECT_FALSE(peers.has_roce_port(address(2), kBegin));
  peers.has_answered(address(1), kBegin + KnownPeers::kPortMemory);
  EXPECT_FALSE(peers.has_roce_port(address(1), kBegin + KnownPeers::kPortMemory));
  EXPECT_TRUE(peers.knows(address(1), kBegin + KnownPeers::kPortMemory));
}

TEST(KnownPeers, AFloodOfStrangersDrivesOutNoneThatSpeaksFromTheRocePort) {
  KnownPeers peers(kSecret);
  peers.has_answered_from_roce_port(address(1), kBegin);
  for (uint32_t i = 0; i < 100000; ++i) {
    roce::Address stranger = address(2);
    store_be(&stranger.bytes[0], i + 1);
    peers.may_send_unasked(stranger, kBegin);
  }
  EXPECT_TRUE(peers.has_roce_port(address(1), kBegin));
}

TEST(IdSequence, GivesEachNumberOnceAndNoneCanBeTold) {
  IdSequence ids(0x1234567890abcdef, {});
  std::set<uint32_t> seen;
  std::set<uint32_t> differences;
  uint32_t last = 0;
  for (int i = 0; i < 50000; ++i) {
    const uint32_t id = ids.next();
    EXPECT_TRUE(seen.insert(id).second);
    differences.insert(id ^ last);
    last = id;
  }
  EXPECT_GT(differences.size(), 49900u);
  EXPECT_NE(IdSequence(1, {}).next(), IdSequence(2, {}).next());
}

TEST(IdSequence, IsACountWhereAMaskIsGiven) {
  IdSequence ids(kSecret, 0x100);
  EXPECT_EQ(ids.next(), byteswap(0x100u));
  EXPECT_EQ(ids.next(), byteswap(0x101u));
}

// A host whose address an attacker uses as the source of REQs.
struct Victim : Pair {
  Req req(uint32_t id) const {
    Req req;
    req.local_id = id;
    req.local_qpn = 16 + id;
    req.path_mtu = 3;
    req.primary.local_gid = address(9);
    req.primary.remote_gid = address(2);
    req.primary.local_ack_timeout = 0;
    req.local_response_timeout = 0;
    req.max_cm_retries = 15;
    return req;
  }
  void forge(uint32_t id) {
    roce::Path path;
    path.source = address(9);
    path.destination = address(2);
    b.receive({encode(req(id), 1), path}, now);
  }
  // Sends a REQ that the owner of b accepts.
  LocalId ask(uint32_t id) {
    forge(id);
    const LocalId connection = b.last().id;
    EXPECT_TRUE(b.manager.reply(connection, b.reply_parameters(1000 + id), now));
    return connection;
  }
  // Returns how many datagrams b sends to the victim while its timers run for `time`.
  size_t wait(Duration time) {
    const TimePoint end = now + time;
    while (b.manager.deadline() <= end) {
      now = std::max(now, b.manager.deadline());
      b.manager.on_timer(now);
    }
    now = end;
    return std::exchange(b.sent, {}).size();
  }
};

// Without the limit, a REQ with response timeout 0 would cause 17 datagrams: a REP, 15 repetitions, and a
// REJ.
TEST(HostileReq, DrawsFewDatagramsFromOneWhoNeverAnswers) {
  Victim attack;
  attack.ask(1);
  EXPECT_EQ(attack.wait(milliseconds(500)), 1u + 1u) << "the REP, and one more";
  EXPECT_LE(attack.wait(minutes(10)), 3u) << "two more, and a REJ";
  EXPECT_EQ(attack.b.manager.half_open(), 0u);
}

TEST(HostileReq, OfWhichThereAreManyDrawOneDatagramEachAndTwoASecond) {
  Victim attack;
  for (uint32_t i = 1; i <= 1000; ++i) attack.ask(i);
  EXPECT_LE(attack.wait(minutes(1)), 1000u + 121u);
}

TEST(HostileReq, WhoseReplyIsTakenBackDrawsFewRejs) {
  Victim attack;
  const LocalId connection = attack.ask(1);
  ASSERT_TRUE(attack.b.manager.destroy(connection, attack.now));
  EXPECT_LE(attack.wait(minutes(10)), 2u + 3u) << "the REP, the REJ, and what is repeated of it";
}

// A host that has answered once gets all repetitions of a REP, not faster than every 67 ms.
TEST(Repetition, OfARepToAHostThatHasAnsweredOnceGoesOnToTheEnd) {
  Pair pair;
  pair.connect(100, 200);
  auto parameters = pair.a.parameters_to(pair.b, 101);
  parameters.local_response_timeout = 0;
  ASSERT_TRUE(pair.a.manager.connect(parameters, 5, pair.now));
  pair.carry();
  ASSERT_TRUE(pair.b.manager.reply(pair.b.last().id, pair.b.reply_parameters(201), pair.now));
  pair.b.sent.clear();
  size_t sent = 0;
  const TimePoint first = pair.b.manager.deadline();
  EXPECT_GE(first - pair.now, milliseconds(67)) << "and not every millisecond";
  TimePoint last{};
  while (pair.b.heard.size() < 3 || pair.b.last().heard != Heard::kUnreachable) {
    last = pair.b.manager.deadline();
    pair.b.manager.on_timer(last);
    sent += std::exchange(pair.b.sent, {}).size();
  }
  EXPECT_EQ(sent, 15u + 1u) << "REPs, and the REJ";
  EXPECT_GE(last - first, 15 * milliseconds(67));
}

// The host is not known yet, and its RTU is lost. A repeated REP brings another RTU.
TEST(Repetition, OfARepFindsTheRtuAgainThatAStrangersHostHasLost) {
  HalfOpen pair;
  pair.reply();
  ASSERT_TRUE(pair.a.manager.ready(pair.active, {}, pair.now));
  pair.a.sent.clear();
  pair.pass(seconds(10));
  EXPECT_EQ(pair.b.state(pair.passive), State::kEstablished);
}

}  // namespace
}  // namespace verbena::cm
