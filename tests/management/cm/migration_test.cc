// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "management/cm/parameters.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

ManagerConfig with_alternate_paths() {
  ManagerConfig config;
  config.alternate_paths = true;
  return config;
}

// IBTA annex A16: RoCE has no alternate paths.
TEST(AlternatePath, IsRefusedAsUnsupportedWhereThereIsNone) {
  Pair pair;
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.load_alternate_path(ids.a, {}, {}, pair.now));
  const size_t heard = pair.b.heard.size();
  pair.carry();
  EXPECT_EQ(pair.b.heard.size(), heard);
  EXPECT_EQ(pair.a.last().heard, Heard::kAlternatePathAnswer);
  EXPECT_EQ(static_cast<AprStatus>(pair.a.last().reason), AprStatus::kUnsupported);
  EXPECT_EQ(pair.a.state(ids.a), State::kEstablished);
  EXPECT_EQ(pair.a.manager.deadline(), kNever);
}

TEST(AlternatePath, IsLoadedByLapAndApr) {
  Pair pair(with_alternate_paths());
  const auto ids = pair.connect();
  PathFields path;
  path.local_gid = address(1);
  path.remote_gid = address(2);
  ASSERT_TRUE(pair.a.manager.load_alternate_path(ids.a, path, {}, pair.now));
  EXPECT_EQ(pair.a.manager.load_alternate_path(ids.a, path, {}, pair.now).error(), Error{EINVAL});
  const Datagram lap = pair.a.take();
  pair.b.receive(lap, pair.now);
  EXPECT_EQ(pair.b.last().heard, Heard::kAlternatePath);
  pair.b.receive(lap, pair.now);
  EXPECT_EQ(pair.b.manager.counters().duplicates[static_cast<size_t>(MessageType::kLap)], 1u);
  ASSERT_TRUE(pair.b.manager.delay(ids.b, 20, Manager::MraTime::kNow, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kDelay);
  EXPECT_EQ(pair.a.manager.deadline(), pair.now + time_of(20) + time_of(19));
  pair.b.receive(lap, pair.now);
  EXPECT_EQ(pair.b.take().type(), MessageType::kMra);
  ASSERT_TRUE(pair.b.manager.answer_alternate_path(ids.b, AprStatus::kLoaded, {}, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.last().heard, Heard::kAlternatePathAnswer);
  EXPECT_EQ(static_cast<AprStatus>(pair.a.last().reason), AprStatus::kLoaded);
  EXPECT_EQ(pair.a.manager.deadline(), kNever);
}

TEST(AlternatePath, IsGivenUpWithoutHarmToTheConnection) {
  Pair pair(with_alternate_paths());
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.load_alternate_path(ids.a, {}, {}, pair.now));
  pair.pass_in_silence(std::chrono::minutes(3));
  EXPECT_EQ(pair.a.last().heard, Heard::kUnreachable);
  EXPECT_EQ(static_cast<MessageType>(pair.a.last().reason), MessageType::kLap);
  EXPECT_EQ(pair.a.state(ids.a), State::kEstablished);
  ASSERT_TRUE(pair.a.manager.disconnect(ids.a, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.b.last().heard, Heard::kDisconnectRequest);
}

TEST(AlternatePath, IsAskedForByTheActiveSideAlone) {
  Pair pair(with_alternate_paths());
  const auto ids = pair.connect();
  EXPECT_EQ(pair.b.manager.load_alternate_path(ids.b, {}, {}, pair.now).error(), Error{EINVAL});
}

TEST(AlternatePath, OfNoConnectionIsRefusedByItsId) {
  Pair pair(with_alternate_paths());
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.b.manager.forget(ids.b));
  ASSERT_TRUE(pair.a.manager.load_alternate_path(ids.a, {}, {}, pair.now));
  pair.carry();
  EXPECT_EQ(static_cast<AprStatus>(pair.a.last().reason), AprStatus::kInvalidCommunicationId);
}

TEST(AlternatePath, IsForgottenWhenTheConnectionEnds) {
  Pair pair(with_alternate_paths());
  const auto ids = pair.connect();
  ASSERT_TRUE(pair.a.manager.load_alternate_path(ids.a, {}, {}, pair.now));
  pair.a.sent.clear();
  ASSERT_TRUE(pair.b.manager.disconnect(ids.b, {}, pair.now));
  pair.carry();
  EXPECT_EQ(pair.a.state(ids.a), State::kDreqReceived);
  EXPECT_EQ(pair.a.manager.deadline(), kNever);
}

}  // namespace
}  // namespace verbena::cm
