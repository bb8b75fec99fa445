// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/processor_demand.h"

#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

namespace verbena::engine {
namespace {

TEST(ProcessorDemand, ReadsHowManyThreadsWantToRun) {
  EXPECT_EQ(ProcessorDemand::runnable_in("0.20 0.18 0.12 3/80 11206\n"), 3);
  EXPECT_EQ(ProcessorDemand::runnable_in("125.20 90.18 60.12 130/4711 4194304\n"), 130);
}

TEST(ProcessorDemand, KnowsWhenItIsNotTold) {
  for (const char* text : {"", "0.20 0.18 0.12\n", "0.20 0.18 0.12 x/80 1\n", "/", "0.2 3x/80"}) {
    EXPECT_EQ(ProcessorDemand::runnable_in(text), -1) << text;
  }
}

// More threads spin on the processors of this one than there are.
TEST(ProcessorDemand, SeesThatProcessorsAreWanted) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::atomic<bool> stop{false};
  std::atomic<int> running{0};
  std::vector<std::thread> spinners;
  for (int i = 0; i <= CPU_COUNT(&allowed); ++i) {
    spinners.emplace_back([&] {
      ++running;
      while (!stop) continue;
    });
  }
  while (running < static_cast<int>(spinners.size())) std::this_thread::yield();
  ProcessorDemand demand;
  EXPECT_TRUE(demand.wanted(MonotonicClock::now()));
  stop = true;
  for (std::thread& spinner : spinners) spinner.join();
}

// In place of the kernel's.
class LoadAverage {
 public:
  LoadAverage() : file_(::mkstemp(path_)) { says("1/80"); }
  ~LoadAverage() { ::unlink(path_); }
  const char* path() const { return path_; }
  void says(const std::string& threads) {
    const std::string text = "0.20 0.18 0.12 " + threads + " 11206\n";
    EXPECT_EQ(::pwrite(file_.get(), text.data(), text.size(), 0), std::ssize(text));
  }

 private:
  char path_[40] = "/tmp/processor_demand_test.XXXXXX";
  UniqueFd file_;
};

TEST(ProcessorDemand, SeesThatNobodyElseWantsOne) {
  const LoadAverage load;
  ProcessorDemand demand(load.path());
  EXPECT_FALSE(demand.wanted(MonotonicClock::now()));
}

TEST(ProcessorDemand, SomebodyWhoIsGoneAtTheNextLookDoesNotWantOne) {
  constexpr Duration kLong = std::chrono::seconds(100);  // after which it looks
  LoadAverage load;
  ProcessorDemand demand(load.path());
  TimePoint now = MonotonicClock::now();
  ASSERT_FALSE(demand.wanted(now));
  load.says("9999/9999");
  EXPECT_FALSE(demand.wanted(now += kLong));
  EXPECT_TRUE(demand.wanted(now += kLong));
  EXPECT_TRUE(demand.wanted(now += kLong));
  load.says("1/9999");
  EXPECT_FALSE(demand.wanted(now += kLong));
}

TEST(ProcessorDemand, PausesAndLooks) {
  LoadAverage load;
  ProcessorDemand demand(load.path());
  const Demand noticed = demand.pause();
  EXPECT_TRUE(noticed.looked);
  EXPECT_EQ(noticed.wanted, noticed.lost != Duration::zero())
      << "nobody but a thread that takes it away does";
}

TEST(ProcessorDemand, TakesThemForWantedWhereItIsNotTold) {
  ProcessorDemand demand("/nonexistent/loadavg");
  EXPECT_TRUE(demand.wanted(MonotonicClock::now()));
}

}  // namespace
}  // namespace verbena::engine
