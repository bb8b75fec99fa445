// SPDX-License-Identifier: Apache-2.0
// The goodput as a fraction of the wire's rate. Not a benchmark: the wire's time is simulated. Tests that
// losses cost no more than they must.
#include <gtest/gtest.h>

#include "adapter/transport/simulation/world.h"

namespace verbena::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct LossCase {
  const char* name;
  uint32_t loss;               // parts per million
  double least_goodput;        // fraction of the wire's rate
  double max_retransmissions;  // fraction of the packets sent
};

class Throughput : public testing::TestWithParam<LossCase> {
 protected:
  static constexpr uint64_t kRate = 1'250'000'000;  // 10 Gb/s
#ifdef VERBENA_SIMULATION_IS_SHORT
  static constexpr uint32_t kPackets = 20'000;
#else
  static constexpr uint32_t kPackets = 300'000;
#endif

  static WorldOptions options(uint64_t seed) {
    WorldOptions o;
    o.seed = seed;
    o.conditions.loss = GetParam().loss;
    o.conditions.bytes_per_second = kRate;
    o.conditions.queue_bytes = 1 << 20;
    o.conditions.delay = microseconds(5);
    o.both_ways = false;
    o.flow.mtu = 4096;
    o.flow.max_message = 1 << 20;
    o.flow.only_writes = true;
    o.flow.packets = kPackets;
    o.sizes.send_requests = 16;
    o.sizes.least_ack_timeout = milliseconds(16);
    o.attributes.path_mtu = 4096;
    o.attributes.access = kAllAccess;
    o.attributes.timeout = 14;
    o.attributes.retry_count = 7;
    o.attributes.rnr_retry = 7;
    return o;
  }
};

TEST_P(Throughput, StaysAboveItsBound) {
  World world(options(1));
  ASSERT_TRUE(world.run()) << world.complaint();
  const double elapsed_s = std::chrono::duration<double>(world.elapsed()).count();
  const double goodput = static_cast<double>(kPackets) * 4096 / elapsed_s / static_cast<double>(kRate);
  const auto sent = static_cast<double>(world.host(0).counter(kSentPackets));
  const double again = static_cast<double>(world.host(0).counter(kRetransmittedPackets)) / sent;
  RecordProperty("goodput", std::to_string(goodput));
  RecordProperty("retransmissions", std::to_string(again));
  EXPECT_GE(goodput, GetParam().least_goodput);
  EXPECT_LE(again, GetParam().max_retransmissions);
}
INSTANTIATE_TEST_SUITE_P(Loss, Throughput,
                         testing::Values(LossCase{"None", 0, 0.95, 0},
                                         LossCase{"OneIn10000", 100, 0.85, 0.01},
                                         LossCase{"OneIn1000", 1'000, 0.6, 0.05},
                                         LossCase{"OneIn100", 10'000, 0.1, 0.3}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace verbena::transport
