// SPDX-License-Identifier: Apache-2.0
// UC and UD over links outside of data centers: they send what the link carries, and not more. Time is
// virtual; the tests print their measurements.
#include <iostream>
#include <numeric>

#include <gtest/gtest.h>

#include "adapter/transport/simulation/bulk.h"

namespace verbena::transport {
namespace {

using std::chrono::milliseconds;

#ifdef VERBENA_SIMULATION_IS_SHORT
constexpr Duration kTime = milliseconds(200);
constexpr double kAtLeast = 0.5;  // of the required share: the path is still being probed
constexpr double kAtMost = 10;
#else
constexpr Duration kTime = milliseconds(2000);
constexpr double kAtLeast = 1;
constexpr double kAtMost = 1;
#endif

// The measurements of a run, without its first part.
struct Shown {
  std::vector<double> shares;  // fraction of the ideal, by QP
  double overflowed;           // fraction of all packets
  double all() const { return std::accumulate(shares.begin(), shares.end(), 0.0); }
};

BulkOptions over(const net::LinkSettings& link, roce::Service service = roce::Service::kUc) {
  BulkOptions options;
  options.service = service;
  options.opcode = IBV_WR_SEND;
  options.link = link;
  if (service == roce::Service::kUd) options.message = options.mtu;
  return options;
}

Shown run(Bulk& bulk, const char* name) {
  EXPECT_TRUE(bulk.run(kTime)) << "a request failed";
  bulk.goodput();
  const net::LinkCounters before = bulk.link();
  EXPECT_TRUE(bulk.run(kTime)) << "a request failed";
  const net::LinkCounters after = bulk.link();
  Shown shown{bulk.goodput(), static_cast<double>(after.overflowed - before.overflowed) /
                                  static_cast<double>(after.packets - before.packets)};
  for (double& share : shown.shares) share /= bulk.ideal();
  std::cout << "  " << name << ": " << shown.all() << " of the ideal, fairness " << fairness_of(shown.shares)
            << ", lost " << shown.overflowed << std::endl;
  return shown;
}

struct PathCase {
  const char* name;
  net::LinkSettings link;
};

class UnreliablePaths : public testing::TestWithParam<PathCase> {};

TEST_P(UnreliablePaths, CarryWhatTheyCan) {
  for (const roce::Service service : {roce::Service::kUc, roce::Service::kUd}) {
    Bulk bulk(over(GetParam().link, service));
    const Shown shown = run(bulk, GetParam().name);
    EXPECT_GE(shown.all(), kAtLeast * 0.9);
    EXPECT_LE(shown.overflowed, kAtMost * 0.03) << "more was sent than the link carries";
  }
}

net::LinkSettings losing(uint32_t parts) {
  net::LinkSettings link = link_of(kGigabit, 250'000);
  link.loss = parts;
  return link;
}

INSTANTIATE_TEST_SUITE_P(
    Of, UnreliablePaths,
    testing::Values(PathCase{"Gigabit", link_of(kGigabit, 250'000)},
                    PathCase{"GigabitShortQueue", link_of(kGigabit, 60'000)},
                    PathCase{"TwoMilliseconds", link_of(kGigabit, 250'000, milliseconds(1))},
                    PathCase{"TenMilliseconds", link_of(kGigabit, 1'000'000, milliseconds(5))},
                    PathCase{"OneIn100Lost", losing(10'000)}, PathCase{"OneIn20Lost", losing(50'000)},
                    PathCase{"HundredMegabit", link_of(kGigabit / 10, 60'000)}),
    [](const auto& test) { return test.param.name; });

#ifndef VERBENA_SIMULATION_IS_SHORT
class UnreliableSendersOf : public testing::TestWithParam<roce::Service> {};
INSTANTIATE_TEST_SUITE_P(Service, UnreliableSendersOf,
                         testing::Values(roce::Service::kUc, roce::Service::kUd),
                         [](const auto& test) { return test.param == roce::Service::kUc ? "Uc" : "Ud"; });

TEST_P(UnreliableSendersOf, ShareAQueue) {
  for (const uint64_t seed : {1, 2}) {
    BulkOptions options = over(link_of(kGigabit, 250'000), GetParam());
    options.seed = seed;
    options.senders = 16;
    Bulk bulk(options);
    const Shown shown = run(bulk, "sixteen senders");
    EXPECT_GE(shown.all(), 0.95);
    EXPECT_GE(fairness_of(shown.shares), 0.9);
    EXPECT_LE(shown.overflowed, 0.03);
  }
}

TEST_P(UnreliableSendersOf, LeaveTcpItsPart) {
  BulkOptions options = over(link_of(kGigabit, 250'000), GetParam());
  options.tcp_since = milliseconds(3000);
  Bulk bulk(options);
  const Shown shown = run(bulk, "beside TCP");
  EXPECT_GE(shown.all(), 0.25);
  EXPECT_LE(shown.all(), 0.75);
}
#endif

// A peer that sends no reports, and one that has ended: the sender's rate is fixed then, and nothing hangs.
TEST(UnreliableSenders, WhomNobodyTellsGoOn) {
  BulkOptions options = over(link_of(kGigabit, 250'000));
  Bulk bulk(options);
  EXPECT_TRUE(bulk.run(milliseconds(250)));
  bulk.receiver().qps()[0]->qp->enter(IBV_QPS_ERR);
  const uint64_t before = bulk.sender().counter(kSentPackets);
  EXPECT_TRUE(bulk.run(milliseconds(500)));
  EXPECT_GT(bulk.sender().counter(kSentPackets) - before, 1000u);
}

}  // namespace
}  // namespace verbena::transport
