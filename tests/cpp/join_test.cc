// SPDX-License-Identifier: Apache-2.0
// Coroutines of the C++ API that wait for several tasks, or with a deadline. Time is simulated.
#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <verbena/async/join.hpp>

namespace verbena {
namespace {

using namespace std::chrono_literals;

time_point simulated{1000s};

class Joins : public ::testing::Test {
 protected:
  task<int> after(duration time, int result) {
    co_await io_.sleep(time);
    ended_.push_back(result);
    co_return result;
  }
  task<> failing(duration time, const char* reason) {
    co_await io_.sleep(time);
    throw std::runtime_error(reason);
  }
  // Runs a coroutine, and lets the simulated time pass in steps of a second. Returns the steps.
  template <class T>
  int run(const task<T>& work) {
    work.handle().resume();
    int steps = 0;
    for (; !work.done() && steps < 100; ++steps) {
      while (io_.turn()) {
      }
      if (!work.done()) simulated += 1s;
    }
    return steps;
  }

  loop io_{{.spin = duration::max(), .now = [] { return simulated; }}};
  std::vector<int> ended_;
};

TEST_F(Joins, RunTasksSideBySide) {
  const auto all = when_all(after(3s, 3), after(1s, 1), after(0s, 0));
  EXPECT_LE(run(all), 4);
  EXPECT_EQ(ended_, (std::vector{0, 1, 3}));
  EXPECT_EQ(all.take(), (std::tuple{3, 1, 0}));
}

TEST_F(Joins, TakeTasksThatNeverWait) {
  const auto value = [](std::string text) -> task<std::string> { co_return text; };
  const auto nothing = []() -> task<> { co_return; };
  const auto all = when_all(value("a"), nothing(), value("b"));
  EXPECT_EQ(run(all), 0);
  EXPECT_EQ(std::get<2>(all.take()), "b");
  const auto none = when_all(std::vector<task<int>>{});
  EXPECT_EQ(run(none), 0);
  EXPECT_TRUE(none.take().empty());
}

TEST_F(Joins, TakeAnyNumberOfTasks) {
  std::vector<task<int>> many;
  for (int i = 0; i < 1000; ++i) many.push_back(after(std::chrono::seconds(i % 7), i));
  const auto all = when_all(std::move(many));
  EXPECT_LE(run(all), 8);
  const auto results = all.take();
  ASSERT_EQ(results.size(), 1000U);
  EXPECT_EQ(results[999], 999);
}

TEST_F(Joins, ThrowTheFirstFailureWhenAllHaveEnded) {
  const auto all = when_all(after(5s, 5), failing(3s, "early in the list"), failing(1s, "late in the list"));
  run(all);
  EXPECT_EQ(ended_, std::vector{5});
  try {
    all.take();
    FAIL();
  } catch (const std::runtime_error& thrown) {
    EXPECT_STREQ(thrown.what(), "early in the list");
  }
}

TEST_F(Joins, EndTheirTasksWhenTheyAreDestroyed) {
  const auto counted = std::make_shared<int>();
  const auto hold = [this](std::shared_ptr<int> held) -> task<> {
    co_await io_.sleep(100s);
    ++*held;
  };
  {
    const auto all = when_all(hold(counted), hold(counted));
    all.handle().resume();
    EXPECT_GT(counted.use_count(), 1);
  }
  EXPECT_EQ(counted.use_count(), 1);
  EXPECT_FALSE(io_.turn());
}

TEST_F(Joins, DestroyATaskThatIsLate) {
  const auto counted = std::make_shared<int>();
  const auto hold = [this](std::shared_ptr<int> held) -> task<int> {
    co_await io_.sleep(100s);
    co_return ++*held;
  };
  const auto late = within(io_, 2s, hold(counted));
  EXPECT_LE(run(late), 3);
  try {
    late.take();
    FAIL();
  } catch (const exception& thrown) {
    EXPECT_EQ(thrown.error().code(), ETIMEDOUT);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

TEST_F(Joins, ReturnTheResultOfATaskInTime) {
  const auto in_time = within(io_, 2s, after(1s, 7));
  run(in_time);
  EXPECT_EQ(in_time.take(), 7);
  const auto at_once = within(io_, 0s, []() -> task<int> { co_return 8; }());
  run(at_once);
  EXPECT_EQ(at_once.take(), 8);
  const auto failed = within(io_, 2s, failing(1s, "reason"));
  run(failed);
  EXPECT_THROW(failed.take(), std::runtime_error);
}

// Destroys a deadline whose task has ended, before the loop resumes it.
TEST_F(Joins, MayBeDestroyedAtAnySuspension) {
  for (int turns = 0; turns < 6; ++turns) {
    const auto nested = within(io_, 2s, when_all(after(1s, 1), within(io_, 5s, after(0s, 2))));
    nested.handle().resume();
    for (int i = 0; i < turns; ++i) {
      io_.turn();
      if (i % 2 == 1) simulated += 1s;
    }
  }
  EXPECT_FALSE(io_.turn());
}

}  // namespace
}  // namespace verbena
