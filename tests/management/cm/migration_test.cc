// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "management/cm/sender.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

// IBTA annex A16: RoCE has no alternate paths, so each LAP is refused.
class AlternatePath : public testing::Test {
 protected:
  Lap lap() const {
    Lap lap;
    lap.local_id = ids_.a;
    lap.remote_id = ids_.b;
    lap.remote_qpn = 200;
    return lap;
  }
  // Sends a LAP from a to b, and returns the status in the answer.
  AprStatus answer_to(const Lap& lap) {
    pair_.b.receive({encode(lap, 7), pair_.a.path_to(pair_.b)}, pair_.now);
    const Apr apr = pair_.b.take_as<Apr>();
    EXPECT_EQ(apr.remote_id, lap.local_id);
    EXPECT_EQ(apr.local_id, lap.remote_id);
    return apr.status;
  }

  Pair pair_;
  const Pair::Ids ids_ = pair_.connect();
};

TEST_F(AlternatePath, IsRefusedAsUnsupported) {
  const size_t heard = pair_.b.heard.size();
  EXPECT_EQ(answer_to(lap()), AprStatus::kUnsupported);
  EXPECT_EQ(pair_.b.heard.size(), heard);
  EXPECT_EQ(pair_.b.state(ids_.b), State::kEstablished);
  EXPECT_EQ(pair_.b.manager.deadline(), kNever);
}

TEST_F(AlternatePath, OfAnotherQueuePairIsRefusedByItsNumber) {
  Lap other = lap();
  other.remote_qpn = 201;
  EXPECT_EQ(answer_to(other), AprStatus::kInvalidQpn);
}

TEST_F(AlternatePath, OfNoConnectionIsRefusedByItsId) {
  ASSERT_TRUE(pair_.b.manager.forget(ids_.b));
  EXPECT_EQ(answer_to(lap()), AprStatus::kInvalidCommunicationId);
}

TEST_F(AlternatePath, AnswerThatNobodyAwaitsIsIgnored) {
  const size_t heard = pair_.b.heard.size();
  Apr apr;
  apr.local_id = ids_.a;
  apr.remote_id = ids_.b;
  pair_.b.receive({encode(apr, 7), pair_.a.path_to(pair_.b)}, pair_.now);
  EXPECT_EQ(pair_.b.heard.size(), heard);
  EXPECT_TRUE(pair_.b.sent.empty());
  EXPECT_EQ(pair_.b.manager.counters().duplicates[static_cast<size_t>(MessageType::kApr)], 1u);
}

}  // namespace
}  // namespace verbena::cm
