// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/figures.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace verbena::perf {
namespace {

const Test& test_named(const char* name) {
  return *find_test(name);
}

TEST(PerfFigures, LatencyIsHalfARoundTripWithoutTheTwoSlowest) {
  Parameters parameters(test_named("ib_send_lat"));
  parameters.iterations = 7;
  LatencyTimes times;
  times.posted = {0, 20, 40, 80, 100, 1100, 1900};
  const LatencyFigures figures = latency_figures(times, parameters, 2, 10);
  EXPECT_DOUBLE_EQ(figures.least, 1);
  EXPECT_DOUBLE_EQ(figures.typical, 1);
  EXPECT_DOUBLE_EQ(figures.average, (1 + 1 + 1 + 2) / 4.0);
  EXPECT_DOUBLE_EQ(figures.most, 40);
  EXPECT_DOUBLE_EQ(figures.sorted.back(), 50);
  EXPECT_EQ(figures.iterations, 7U);
}

TEST(PerfFigures, LatencyOfReadsIsTheWholeTime) {
  Parameters parameters(test_named("ib_read_lat"));
  parameters.duration = std::chrono::seconds(1);
  LatencyTimes times;
  times.messages = 100;
  times.ended = 10000;
  const LatencyFigures figures = latency_figures(times, parameters, 2, 10);
  EXPECT_DOUBLE_EQ(figures.average, 10);
  EXPECT_DOUBLE_EQ(figures.per_second, 100000);
}

TEST(PerfFigures, LatencyOfBurstsIsHalfTheTimeToTheAnswer) {
  Parameters parameters(test_named("raw_ethernet_burst_lat"));
  parameters.iterations = 10;
  LatencyTimes times;
  times.posted = {0, 10, 20, 30, 40};
  times.completed = {20, 50, 80, 330, 540};
  const LatencyFigures figures = latency_figures(times, parameters, 64, 10);
  EXPECT_EQ(figures.samples, (std::vector<double>{1, 2, 3, 15, 25}));
  EXPECT_DOUBLE_EQ(figures.average, 2);
  EXPECT_EQ(figures.iterations, 10U);
}

TEST(PerfFigures, BandwidthCountsBytesPerSecond) {
  Parameters parameters(test_named("ib_write_bw"));
  BandwidthTimes times;
  times.messages = 1000;
  times.ended = 1000000;
  EXPECT_DOUBLE_EQ(bandwidth_figures(times, parameters, 1 << 20, 1).average, 1000);
  EXPECT_DOUBLE_EQ(bandwidth_figures(times, parameters, 1 << 20, 1).rate, 0.001);
  parameters.unit = Unit::kGigabits;
  EXPECT_DOUBLE_EQ(bandwidth_figures(times, parameters, 125000, 1).average, 1);
}

double by_trial(const std::vector<std::uint64_t>& posted, const std::vector<std::uint64_t>& completed) {
  double least = 1e300;
  for (std::size_t i = 0; i < posted.size(); ++i) {
    for (std::size_t j = i; j < posted.size(); ++j) {
      if (posted[i] == 0 || completed[j] == 0) continue;
      least = std::min(least, static_cast<double>(completed[j] - posted[i]) / static_cast<double>(j - i + 1));
    }
  }
  return least;
}

TEST(PerfFigures, PeakIsThatOfTheFastestSequence) {
  std::minstd_rand random(11);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = 1 + random() % 60, moderation = 1 + random() % 8, list = 1 + random() % 4;
    std::vector<std::uint64_t> posted(count), completed(count);
    std::uint64_t now = 1000;
    for (std::size_t i = 0; i < count; ++i) {
      now += random() % 100;
      if (i % list == 0) posted[i] = now;
    }
    std::uint64_t done = posted[0];
    for (std::size_t i = 0; i < count; ++i) {
      done = std::max(done, posted[i]) + 1 + random() % 150;
      if (i % moderation == moderation - 1 || i + 1 == count) completed[i] = done;
    }
    EXPECT_NEAR(least_time_per_message(posted, completed), by_trial(posted, completed), 1e-6) << round;
  }
}

}  // namespace
}  // namespace verbena::perf
