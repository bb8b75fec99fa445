// SPDX-License-Identifier: Apache-2.0
// Queue pairs that share a link. Each gets its share, and many senders to one receiver share the link. Small
// messages wait behind large ones no longer than the link's queue makes them. Time is virtual; the tests
// print their measurements.
#include <algorithm>
#include <iostream>
#include <numeric>

#include <gtest/gtest.h>

#include "adapter/transport/simulation/bulk.h"

namespace verbena::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kQueueBytes = 250'000;

#ifdef VERBENA_SIMULATION_IS_SHORT
constexpr Duration kTime = milliseconds(300);
constexpr bool kIsSettled =
    false;  // shares are still changing: checks only that nothing fails and the link is full
#else
constexpr Duration kTime = milliseconds(3000);
constexpr bool kIsSettled = true;
#endif

BulkOptions gigabit() {
  BulkOptions options;
  options.link = link_of(kGigabit, kQueueBytes);
  return options;
}

double sum_of(const std::vector<double>& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0.0);
}

// Returns the fraction of packets that the link's queue drops in the next `time`.
double lost_in(Bulk& bulk, Duration time) {
  const net::LinkCounters before = bulk.link();
  EXPECT_TRUE(bulk.run(time));
  const net::LinkCounters after = bulk.link();
  return static_cast<double>(after.overflowed - before.overflowed) /
         static_cast<double>(after.packets - before.packets);
}

// Checks shares after the flows have settled, which takes long for many flows. `max_lost` is the largest
// fraction of packets that the link's queue may drop.
void expect_shared(Bulk& bulk, double max_lost) {
  EXPECT_TRUE(bulk.run(2 * kTime / 3));
  bulk.goodput();
  const double lost = lost_in(bulk, kTime);
  const std::vector<double> shares = bulk.goodput();
  std::cout << "  lost " << lost << ", fairness " << fairness_of(shares) << ", "
            << sum_of(shares) / bulk.ideal() << " of the ideal" << std::endl;
  EXPECT_GE(sum_of(shares), 0.9 * bulk.ideal());
  if (kIsSettled) {
    EXPECT_LE(lost, max_lost);
    EXPECT_GE(fairness_of(shares), 0.95);
  }
}

TEST(ManyFlows, OfSixtyFourQueuePairsShareALink) {
  BulkOptions options = gigabit();
  options.qp_pairs = 64;
  options.depth = 16;
  Bulk bulk(options);
  expect_shared(bulk, 0.04);
}

TEST(ManyFlows, LetSmallMessagesPass) {
  BulkOptions options = gigabit();
  options.qp_pairs = 4;
  options.echo = true;
  Bulk bulk(options);
  EXPECT_TRUE(bulk.run(kTime / 3));
  bulk.goodput();
  bulk.echoes();
  EXPECT_TRUE(bulk.run(kTime));
  std::vector<Duration> echoes = bulk.echoes();
  ASSERT_FALSE(echoes.empty());
  std::ranges::sort(echoes);
  const Duration p99 = echoes[echoes.size() * 99 / 100];
  const Duration queue{static_cast<int64_t>(kQueueBytes * 1'000'000'000 / kGigabit)};
  const double share = sum_of(bulk.goodput()) / bulk.ideal();
  std::cout << "  echo: median " << echoes[echoes.size() / 2] / microseconds(1) << " us, p99 "
            << p99 / microseconds(1) << " us, beside " << share << " of the ideal" << std::endl;
  EXPECT_LE(p99, 2 * queue);
  EXPECT_GE(share, 0.85);
}

TEST(ManyFlows, OfSixteenSendersShareTheirReceiver) {
  BulkOptions options = gigabit();
  options.senders = 16;
  Bulk bulk(options);
  expect_shared(bulk, 0.01);
}

// At first the senders do not know of each other, and each takes a full queue for the path's capacity.
TEST(ManyFlows, OfSixteenSendersThatBeginAtOnceSoonKnowOfEachOther) {
  for (const Duration delay : {microseconds(50), microseconds(1000)}) {
    BulkOptions options = gigabit();
    options.link.delay = delay;
    options.senders = 16;
    Bulk bulk(options);
    const double lost = lost_in(bulk, kTime / 3);
    const double share = sum_of(bulk.goodput()) / bulk.ideal();
    std::cout << "  round trip " << 2 * delay / microseconds(1) << " us: lost at first " << lost << ", "
              << share << " of the ideal" << std::endl;
    if (kIsSettled) {
      EXPECT_GE(share, 0.9);
      EXPECT_LE(lost, 0.06);
    }
  }
}

// A full queue adds a fifth of the round trip.
TEST(ManyFlows, OfSomeSendersShareAPathThatHoldsMoreThanItsQueue) {
  for (const uint32_t senders : {4, 16}) {
    BulkOptions options = gigabit();
    options.link.delay = milliseconds(5);
    options.senders = senders;
    Bulk bulk(options);
    EXPECT_TRUE(bulk.run(kTime / 3));
    bulk.goodput();
    const double lost = lost_in(bulk, kTime);
    const double share = sum_of(bulk.goodput()) / bulk.ideal();
    std::cout << "  " << senders << " senders: lost " << lost << ", " << share << " of the ideal"
              << std::endl;
    if (kIsSettled) {
      EXPECT_GE(share, 0.9);
      EXPECT_LE(lost, 0.03);
    }
  }
}

// A gigabit link whose queue TCP's BBR has used for three seconds. Both flows get a quarter of the link or
// more.
TEST(ManyFlows, LeaveTcpItsPartAndHaveTheirs) {
  BulkOptions options = gigabit();
  options.tcp_since = kTime;
  Bulk bulk(options);
  const auto before = static_cast<double>(bulk.tcp().delivered_bytes());
  bulk.goodput();
  EXPECT_TRUE(bulk.run(kTime));
  const double elapsed_s = std::chrono::duration<double>(kTime).count();
  const double ours = bulk.goodput()[0] / kGigabit;
  const double tcps = (static_cast<double>(bulk.tcp().delivered_bytes()) - before) / elapsed_s / kGigabit;
  std::cout << "  of the link: " << ours << ", TCP " << tcps << std::endl;
  EXPECT_GE(ours, 0.25);
  EXPECT_GE(tcps, 0.25);
}

}  // namespace
}  // namespace verbena::transport
