// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/sweep.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commands/perf/parameters.h"
#include "commands/perf/size_text.h"
#include "commands/perf/sweep_run.h"

namespace verbena::perf {
namespace {

using Values = std::vector<std::uint64_t>;

Parameters sweeping(const char* test, const char* text) {
  Parameters parameters(*find_test(test));
  parameters.sweep = Sweep::parse(text);
  return parameters;
}

TEST(PerfSweep, TakesRangesListsAndDefaults) {
  const Sweep sweep = Sweep::parse("sizes=64-1K,qps=1/3/8,depths");
  EXPECT_EQ(sweep.sizes, (Values{64, 128, 256, 512, 1024}));
  EXPECT_EQ(sweep.queue_pairs, (Values{1, 3, 8}));
  EXPECT_EQ(sweep.depths, (Values{1, 2, 4, 8, 16, 32, 64, 128}));
  EXPECT_FALSE(sweep.has_all_sizes);
  EXPECT_EQ(Sweep::parse("sizes").sizes.back(), 8U << 20);
  EXPECT_TRUE(Sweep::parse("sizes").has_all_sizes);
  EXPECT_EQ(Sweep::parse("qps=3-10").queue_pairs, (Values{3, 6, 10})) << "the end of a range belongs to it";
}

TEST(PerfSweep, RefusesOtherTexts) {
  for (const char* text : {"", "size", "sizes=", "sizes=x", "sizes=0", "sizes=4-2", "qps=1//2", "qps=1,qps=2",
                           "depths=99999", "sizes=2G", "qps=1-", "sizes,"})
    EXPECT_THROW(Sweep::parse(text), std::invalid_argument) << text;
}

TEST(PerfSweep, RunsAllCombinationsWithSizesFastest) {
  const auto points = points_of(sweeping("ib_write_bw", "sizes=8/16K,depths=4/256"), 4096);
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[1].size, 16384U);
  EXPECT_EQ(points[1].send_depth, 4U);
  EXPECT_EQ(points[1].moderation, 1U)
      << "each point derives its own settings: large messages complete one by one";
  EXPECT_EQ(points[2].size, 8U);
  EXPECT_EQ(points[2].send_depth, 256U);
  EXPECT_EQ(points[2].moderation, 100U);
}

TEST(PerfSweep, PostsAReceiveForEachMessageUnderWay) {
  const auto points = points_of(sweeping("ib_send_bw", "depths=8/1000"), 4096);
  EXPECT_EQ(points[0].receive_depth, 512U);
  EXPECT_EQ(points[1].receive_depth, 1000U);
}

TEST(PerfSweep, LeavesOutSizesThatNoDatagramHas) {
  Parameters parameters = sweeping("ib_send_bw", "sizes");
  parameters.transport = verbena::ud;
  EXPECT_EQ(points_of(parameters, 1024).back().size, 1024U);
  parameters.sweep = Sweep::parse("sizes=64-4K");
  EXPECT_THROW(points_of(parameters, 1024), std::invalid_argument);
}

TEST(PerfSweep, RefusesDimensionsThatTheTestDoesNotHave) {
  EXPECT_THROW(points_of(sweeping("ib_send_bw", "depths=2000"), 4096), std::invalid_argument) << "-n is 1000";
  EXPECT_THROW(sweeping("ib_atomic_bw", "sizes").settle(), std::invalid_argument);
  EXPECT_THROW(sweeping("ib_send_lat", "qps").settle(), std::invalid_argument);
  EXPECT_NO_THROW(sweeping("ib_atomic_bw", "qps,depths").settle());
}

TEST(PerfSizes, AreWrittenAsTheyAreRead) {
  for (const std::uint64_t size : {1U, 64U, 1000U, 1024U, 1536U, 65536U, 1U << 20, 3U << 20})
    EXPECT_EQ(read_size(size_text(size)), size);
  EXPECT_EQ(size_text(65536), "64K");
  EXPECT_EQ(size_text(1000), "1000");
}

}  // namespace
}  // namespace verbena::perf
