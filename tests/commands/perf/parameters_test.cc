// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/parameters.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commands/perf/endpoint.h"
#include "commands/perf/options.h"

namespace verbena::perf {
namespace {

Parameters parsed(const char* test, std::vector<std::string> words) {
  std::vector<char*> arguments;
  words.insert(words.begin(), test);
  for (std::string& each : words) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  auto found = parse(*find_test(test), test, static_cast<int>(words.size()), arguments.data());
  if (!found.parameters) throw std::invalid_argument("no parameters");
  return *found.parameters;
}

TEST(PerfParameters, HavePerftestsDefaults) {
  const Parameters write = parsed("ib_write_bw", {"host"});
  EXPECT_EQ(write.size, 65536U);
  EXPECT_EQ(write.iterations, 5000U);
  EXPECT_EQ(write.moderation, 1U) << "large messages complete one by one";
  EXPECT_TRUE(write.is_client() && write.sends() && !write.receives());
  const Parameters latency = parsed("ib_send_lat", {});
  EXPECT_EQ(latency.size, 2U);
  EXPECT_EQ(latency.receive_depth, 512U);
  EXPECT_TRUE(!latency.is_client() && latency.sends() && latency.receives());
  EXPECT_EQ(parsed("ib_send_bw", {"-s", "64"}).moderation, 100U);
  EXPECT_EQ(parsed("ib_send_bw", {"-c", "UD", "-s", "64"}).receive_depth, 1000U);
  EXPECT_FALSE(parsed("ib_write_bw", {"-n", "20001"}).has_peak);
}

TEST(PerfParameters, TakeSizesWithAUnit) {
  EXPECT_EQ(parsed("ib_send_bw", {"-s", "4K"}).size, 4096U);
  EXPECT_EQ(parsed("ib_send_bw", {"--size=2M"}).size, 2U << 20);
  EXPECT_THROW(parsed("ib_send_bw", {"-s", "4G"}), std::invalid_argument);
  EXPECT_THROW(parsed("ib_send_bw", {"-s", "4096M"}), std::invalid_argument);
}

TEST(PerfParameters, TakeAFileForPlotsAnywhereBehindTheTest) {
  const Parameters plotting = parsed("ib_send_lat", {"--plot", "a.svg", "host"});
  EXPECT_TRUE(plotting.plots);
  EXPECT_EQ(plotting.plot_file, "a.svg");
  EXPECT_EQ(plotting.server, "host");
  EXPECT_EQ(parsed("ib_send_lat", {"--plot", "host"}).plot_file, "");
  EXPECT_EQ(parsed("ib_send_lat", {"host.svg"}).server, "host.svg");
  EXPECT_THROW(parsed("ib_send_lat", {"--plot", "--json"}), std::invalid_argument);
  EXPECT_NO_THROW(parsed("ib_send_lat", {"--plot", "--json", "a.svg"}));
}

TEST(PerfParameters, ThatContradictEachOtherAreRefused) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"-c", "UD"},
                                                                                     {"-c", "UC"},
                                                                                     {"-s", "4"},
                                                                                     {"-a"},
                                                                                     {"-I", "4"},
                                                                                     {"-D", "4", "-f", "2"},
                                                                                     {"-l", "3"},
                                                                                     {"-D", "4", "-e"},
                                                                                     {"-R", "-c", "UC"},
                                                                                     {"-T", "3"},
                                                                                     {"--use-srq"},
                                                                                     {"--aes_xts"},
                                                                                     {"one", "two"}}) {
    EXPECT_THROW(parsed("ib_atomic_bw", words), std::invalid_argument) << words.front();
  }
  EXPECT_THROW(parsed("ib_send_lat", {"-b"}), std::invalid_argument);
  EXPECT_THROW(parsed("ib_send_lat", {"-q", "2"}), std::invalid_argument);
}

TEST(PerfLayout, LetsSmallMessagesCycleThroughABuffer) {
  const Layout layout{4096, 64};
  EXPECT_EQ(layout.step(1), 64U);
  EXPECT_EQ(layout.length(1), 64U);
  EXPECT_EQ(layout.length(2048), 2U);
  EXPECT_EQ(layout.length(2049), 1U);
  EXPECT_EQ(layout.buffer(1), 4096U);
  EXPECT_EQ(layout.buffer(65537), 65600U);
}

}  // namespace
}  // namespace verbena::perf
