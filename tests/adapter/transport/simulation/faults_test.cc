// SPDX-License-Identifier: Apache-2.0
// Two hosts and one request that fails, or a network that falls silent. All requests before it succeed, it
// gets the right status, and all after it are flushed. Neither end waits forever.
//
// VERBENA_SEED=n runs that seed only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/transport/simulation/seeds.h"
#include "adapter/transport/simulation/world.h"

namespace verbena::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AnyOf;

struct FaultCase {
  const char* name;
  Fault fault;
  ibv_wc_status status;  // of the faulty request
  ibv_wc_status
      receive_status;    // of the first receive that fails; IBV_WC_SUCCESS if the receiving QP survives
  ibv_event_type event;  // at the receiver, if its QP fails
};

constexpr ibv_event_type kNoEvent = IBV_EVENT_DEVICE_FATAL;
const FaultCase kCases[] = {
    {"RemoteKey", Fault::kRemoteKey, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
    {"RemoteBounds", Fault::kRemoteBounds, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR,
     IBV_EVENT_QP_ACCESS_ERR},
    {"LocalKey", Fault::kLocalKey, IBV_WC_LOC_PROT_ERR, IBV_WC_SUCCESS, kNoEvent},
    {"TooLong", Fault::kTooLong, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, kNoEvent},
    {"NoReceive", Fault::kNoReceive, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS, kNoEvent},
};

class TwoHostsFault : public testing::TestWithParam<FaultCase> {
 protected:
  static constexpr uint64_t kSeeds = 40;

  static WorldOptions options(uint64_t seed, bool lossy) {
    WorldOptions o = WorldOptions::draw(seed + 100'000 * static_cast<uint64_t>(GetParam().fault), 1000);
    o.flow.fault = GetParam().fault;
    o.flow.fault_at = seed * 7 % 150;
    o.flow.lateness = 0;  // a late receive is not a missing one
    // Windows and queues never delay a receive for longer than the RNR retries last.
    o.flow.max_message = std::min(o.flow.max_message, 20'000u);
    o.sizes.recv_requests = std::max(o.sizes.recv_requests, 16u);
    o.attributes.min_rnr_timer = 14;
    o.attributes.rnr_retry = GetParam().fault == Fault::kNoReceive ? 3 : 7;
    if (!lossy) {
      const Duration delay = o.conditions.delay;
      o.conditions = {};
      o.conditions.delay = delay;
    }
    return o;
  }
};

TEST_P(TwoHostsFault, EndsAsItShouldWhenNothingIsLost) {
  for (const uint64_t seed : seeds_up_to(kSeeds)) {
    SCOPED_TRACE("VERBENA_SEED=" + std::to_string(seed));
    World world(options(seed, false));
    ASSERT_TRUE(world.run()) << world.complaint();
    const Flow& flow = *world.flows()[0];
    ASSERT_EQ(flow.status(), GetParam().status);
    EXPECT_EQ(flow.failed_message(), seed * 7 % 150);
    EXPECT_EQ(world.host(0).qps()[0]->qp->state(), IBV_QPS_ERR);
    const SimulatedQp& receiver = *world.host(1).qps()[0];
    if (GetParam().receive_status != IBV_WC_SUCCESS) {
      EXPECT_EQ(receiver.qp->state(), IBV_QPS_ERR);
      // Without a posted receive there is no flush.
      EXPECT_THAT(flow.receive_status(), AnyOf(GetParam().receive_status, IBV_WC_SUCCESS));
    }
    if (GetParam().event != kNoEvent) {
      EXPECT_THAT(receiver.events, testing::Contains(GetParam().event));
    }
    for (size_t i = 2; i < world.flows().size(); ++i)
      EXPECT_FALSE(world.flows()[i]->failed()) << "another QP's";
  }
}

TEST_P(TwoHostsFault, EndsSoOnABadNetworkOrByItsRetries) {
  for (const uint64_t seed : seeds_up_to(kSeeds)) {
    SCOPED_TRACE("VERBENA_SEED=" + std::to_string(seed));
    World world(options(seed, true));
    ASSERT_TRUE(world.run()) << world.complaint();
    const Flow& flow = *world.flows()[0];
    // The one NAK that tells the reason can be lost, and a QP in the error state sends nothing more. Errors
    // found by the requester itself, or by a QP that survives, are always reported.
    const bool peer_falls_silent = GetParam().receive_status != IBV_WC_SUCCESS;
    if (peer_falls_silent) {
      ASSERT_THAT(flow.status(), AnyOf(GetParam().status, IBV_WC_RETRY_EXC_ERR));
      EXPECT_LE(flow.failed_message(), seed * 7 % 150);
    } else {
      ASSERT_EQ(flow.status(), GetParam().status);
      EXPECT_EQ(flow.failed_message(), seed * 7 % 150);
    }
    for (size_t i = 2; i < world.flows().size(); ++i)
      EXPECT_FALSE(world.flows()[i]->failed()) << "another QP's";
  }
}
INSTANTIATE_TEST_SUITE_P(Faults, TwoHostsFault, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

// ---- silence

TEST(TwoHostsPartition, EndsEveryRequestByItsRetriesAndPromptly) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    WorldOptions o = WorldOptions::draw(seed, 1'000'000);  // more packets than will be sent
    o.flow.lateness = 0;
    o.isolate_at = std::chrono::microseconds(100 + seed * 50);
    World world(o);
    ASSERT_TRUE(world.run()) << world.complaint();
    for (const auto& flow : world.flows()) {
      EXPECT_THAT(flow->status(), AnyOf(IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR));
    }
    for (size_t host = 0; host < 2; ++host) {
      for (const auto& s : world.host(host).qps()) {
        if (o.both_ways || host == 0) {
          EXPECT_EQ(s->qp->state(), IBV_QPS_ERR);
        }
      }
    }
    const Duration timeout =
        std::max(Duration(roce::ack_timeout(o.attributes.timeout)), o.sizes.least_ack_timeout);
    // The first wait, twice as long for the second, and four times for each of up to six more.
    EXPECT_LE(world.elapsed(), o.isolate_at + 28 * timeout + milliseconds(20));
  }
}

}  // namespace
}  // namespace verbena::transport
