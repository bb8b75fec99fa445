// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "adapter/engine/secret.h"
#include "adapter/engine/support/shard_test.h"

namespace verbena::engine {
namespace {

class ShardQpn : public ShardTest {
 protected:
  Result<roce::Qpn> reserve() {
    return shard->exclusively([&] { return shard->reserve_qpn(); });
  }
  void release(roce::Qpn qpn) {
    shard->exclusively([&] { shard->release_qpn(qpn); });
  }
};

TEST_F(ShardQpn, LiesInTheSlotAndIsShownInTheStatusPage) {
  const auto qpn = reserve();
  ASSERT_TRUE(qpn);
  EXPECT_EQ(qpn->slot(), kSlot);
  const protocol::QpStatus& shown = status->qps[qpn->index()];
  EXPECT_EQ(shown.in_use.load(), 1u);
  EXPECT_EQ(shown.qpn.load(), qpn->value());
  release(*qpn);
  EXPECT_EQ(shown.in_use.load(), 0u);
}

TEST_F(ShardQpn, IsNotUsedAgainSoon) {
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < roce::Qpn::kPerSlot / 2; ++i) {
    const auto qpn = reserve();
    ASSERT_TRUE(qpn);
    EXPECT_TRUE(seen.insert(qpn->value()).second);
    release(*qpn);
  }
}

TEST_F(ShardQpn, IsRefusedWhenAllAreInUse) {
  std::set<uint32_t> seen{qp->config().qpn.value()};
  while (const auto qpn = reserve()) EXPECT_TRUE(seen.insert(qpn->value()).second);
  EXPECT_EQ(seen.size(), roce::Qpn::kPerSlot);
  EXPECT_EQ(reserve().error().code, ENOMEM);
  const roce::Qpn freed = roce::Qpn::in_slot(kSlot, qp->config().qpn.index() ^ 1);
  release(freed);
  EXPECT_EQ(reserve().value(), freed);
}

// Other processes can write it, and the one that had the slot before may have died.
TEST_F(ShardQpn, DoesNotDependOnWhatTheStatusPageSays) {
  for (auto& shown : status->qps) shown.in_use.store(1);
  EXPECT_TRUE(reserve());
}

TEST(ShardQpnOfTheFirstSlot, AvoidsTheSpecialOnes) {
  for (const auto& [slot, avoided] : {std::pair{0u, std::set<uint32_t>{0, 1}},
                                      std::pair{roce::Qpn::kSlots - 1, std::set<uint32_t>{0xffffff}}}) {
    auto status = std::make_unique<protocol::StatusPage>();
    Shard shard(slot, {}, *status, 5);
    size_t count = 0;
    for (;; ++count) {
      const auto qpn = shard.exclusively([&] { return shard.reserve_qpn(); });
      if (!qpn) break;
      EXPECT_FALSE(avoided.contains(qpn->value()));
    }
    EXPECT_EQ(count, roce::Qpn::kPerSlot - avoided.size());
  }
}

// The first QPN of a shard is shown to everybody, and is made of a secret that is drawn for it alone.
TEST(RandomSecret, IsAnotherEachTime) {
  const SipKey one = random_secret();
  const SipKey other = random_secret();
  EXPECT_NE(one.low, other.low);
  EXPECT_NE(one.high, other.high);
  EXPECT_NE(one.low, one.high);
}

}  // namespace
}  // namespace verbena::engine
