// SPDX-License-Identifier: Apache-2.0
// Coroutines of the C++ API: tasks, timers and the loop. Time is simulated.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <verbena/async/loop.hpp>

namespace verbena {
namespace {

using namespace std::chrono_literals;

time_point simulated{1000s};
loop_options simulated_time() {
  return {.spin = duration::max(), .now = [] { return simulated; }};
}

// Sets a flag when it is destroyed, such as with the coroutine that has it.
struct Mark {
  explicit Mark(bool& is_gone) : flag(is_gone) {}
  Mark(const Mark&) = delete;
  ~Mark() { flag = true; }
  bool& flag;
};

task<int> value(int number) {
  co_return number;
}
task<int> sum(int count) {
  int all = 0;
  for (int i = 0; i < count; ++i) all += co_await value(i);
  co_return all;
}
task<> failing() {
  throw std::runtime_error("failed");
  co_return;
}

TEST(Task, ComputesItsResultWhenItIsAwaited) {
  loop io;
  EXPECT_EQ(io.run(sum(5)), 10);
}

TEST(Task, DoesNotUseTheStackForEachAwait) {
  loop io;
  EXPECT_EQ(io.run(sum(60'000)), 1'799'970'000);
}

TEST(Task, MovesItsResult) {
  loop io;
  const auto made = io.run([](loop&) -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(4); });
  EXPECT_EQ(*made, 4);
}

TEST(Task, PassesItsExceptionOn) {
  loop io;
  const auto catching = [](loop&) -> task<std::string> {
    try {
      co_await failing();
    } catch (const std::runtime_error& thrown) {
      co_return thrown.what();
    }
    co_return "nothing";
  };
  EXPECT_EQ(io.run(catching), "failed");
  EXPECT_THROW(io.run(failing()), std::runtime_error);
}

TEST(Timers, CallInTheirOrder) {
  detail::timers all;
  detail::timer a, b, c;
  std::vector<int> called;
  a.start(all, time_point(3s), [&] { called.push_back(3); });
  b.start(all, time_point(1s), [&] { called.push_back(1); });
  c.start(all, time_point(2s), [&] { called.push_back(2); });
  EXPECT_EQ(all.next(), time_point(1s));
  EXPECT_FALSE(all.run(time_point(0s)));
  EXPECT_TRUE(all.run(time_point(2s)));
  EXPECT_EQ(called, (std::vector<int>{1, 2}));
  EXPECT_TRUE(a.is_running());
  EXPECT_TRUE(all.run(time_point(9s)));
  EXPECT_EQ(called.back(), 3);
  EXPECT_EQ(all.next(), std::nullopt);
}

TEST(Timers, MayBeStoppedRestartedAndDestroyedAnywhere) {
  detail::timers all;
  std::vector<std::unique_ptr<detail::timer>> many;
  std::vector<int> called;
  for (int i = 0; i < 50; ++i) {
    many.push_back(std::make_unique<detail::timer>());
    many.back()->start(all, time_point(std::chrono::seconds(i * 37 % 50)),
                       [&called, i] { called.push_back(i); });
  }
  for (int i = 0; i < 50; i += 2) many[static_cast<std::size_t>(i)].reset();
  many[1]->start(all, time_point(100s), [&called] { called.push_back(100); });
  many[3]->stop();
  all.run(time_point(200s));
  EXPECT_EQ(called.size(), 24U);
  EXPECT_EQ(called.back(), 100);
  for (std::size_t i = 1; i + 1 < called.size(); ++i) EXPECT_LT(called[i - 1] * 37 % 50, called[i] * 37 % 50);
}

TEST(Timers, MayBeDestroyedByTheirOwnCall) {
  detail::timers all;
  auto one = std::make_unique<detail::timer>();
  one->start(all, time_point(1s), [&] { one.reset(); });
  all.run(time_point(1s));
  EXPECT_EQ(one, nullptr);
}

TEST(Loop, ResumesSleepersAtTheirTime) {
  loop io(simulated_time());
  std::vector<int> woken;
  const auto sleep = [&](int seconds) {
    io.spawn([&, seconds](loop& where) -> task<> {
      co_await where.sleep(std::chrono::seconds(seconds));
      woken.push_back(seconds);
    });
  };
  sleep(3);
  sleep(1);
  while (io.turn()) {
  }
  EXPECT_TRUE(woken.empty());
  simulated += 2s;
  while (io.turn()) {
  }
  EXPECT_EQ(woken, std::vector<int>{1});
  simulated += 2s;
  while (io.turn()) {
  }
  EXPECT_EQ(woken, (std::vector<int>{1, 3}));
  EXPECT_EQ(io.running(), 0U);
}

TEST(Loop, LetsOthersRunWhenACoroutineYields) {
  loop io(simulated_time());
  std::string order;
  const auto two = [&](char name) {
    return [&order, name](loop& where) -> task<> {
      order += name;
      co_await where.yield();
      order += name;
    };
  };
  io.spawn(two('a'));
  io.spawn(two('b'));
  while (io.turn()) {
  }
  EXPECT_EQ(order, "abab");
}

TEST(Loop, ReportsWhatLeavesASpawnedCoroutine) {
  loop io(simulated_time());
  std::string told;
  io.on_failure = [&](std::exception_ptr reason) {
    try {
      std::rethrow_exception(reason);
    } catch (const std::exception& thrown) {
      told = thrown.what();
    }
  };
  io.spawn(failing());
  while (io.turn()) {
  }
  EXPECT_EQ(told, "failed");
  EXPECT_EQ(io.running(), 0U);
}

TEST(Loop, DestroysSuspendedCoroutinesAtItsEnd) {
  bool gone = false;
  {
    loop io(simulated_time());
    io.spawn([&gone](loop& where) -> task<> {
      const Mark mark(gone);
      co_await where.sleep(1h);
    });
    io.turn();
    io.turn();
    EXPECT_FALSE(gone);
  }
  EXPECT_TRUE(gone);
}

// A coroutine that is destroyed while it is about to be resumed is not.
TEST(Loop, ForgetsCoroutinesThatAreDestroyed) {
  loop io(simulated_time());
  for (const bool is_due : {false, true}) {
    bool gone = false;
    std::optional<task<>> one = [](loop& where, bool& flag) -> task<> {
      const Mark mark(flag);
      co_await where.sleep(1s);
      ADD_FAILURE() << "resumed after its end";
    }(io, gone);
    one->handle().resume();
    simulated += 2s;
    if (is_due) io.timers().run(simulated);
    one.reset();
    EXPECT_TRUE(gone);
    while (io.turn()) {
    }
  }
}

// A source that is ready when its eventfd is.
class Doorbell : public event_source {
 public:
  Doorbell() : fd_(eventfd(0, EFD_NONBLOCK)) {}
  ~Doorbell() override { ::close(fd_); }
  void ring() { ASSERT_EQ(eventfd_write(fd_, 1), 0); }
  bool poll() override {
    eventfd_t unused;
    if (eventfd_read(fd_, &unused) != 0) return false;
    ++heard;
    return true;
  }
  bool arm() override { return true; }
  int fd() const override { return fd_; }
  int heard = 0;

 private:
  int fd_;
};

TEST(Loop, SleepsUntilASourceIsReady) {
  loop io({.spin = duration::zero()});
  Doorbell bell;
  io.add(bell);
  EXPECT_TRUE(io.prepare());
  bell.ring();
  epoll_event event{};
  EXPECT_EQ(epoll_wait(io.fd(), &event, 1, 0), 1);
  EXPECT_TRUE(io.turn());
  EXPECT_EQ(bell.heard, 1);
  EXPECT_FALSE(io.turn());
  io.remove(bell);
  bell.ring();
  EXPECT_FALSE(io.turn());
}

// A source that calls a function when it is polled, and another one when it is armed.
class Busybody final : public Doorbell {
 public:
  bool poll() override {
    if (!on_poll) return Doorbell::poll();
    std::exchange(on_poll, nullptr)();  // may destroy this object
    return false;
  }
  bool arm() override {
    ++armed;
    if (on_arm) std::exchange(on_arm, nullptr)();
    return true;
  }
  std::function<void()> on_poll, on_arm;
  int armed = 0;
};

// As a connection does whose completion queue has no room: its request is taken while the loop polls or arms.
TEST(Loop, TakesSourcesThatAreAddedMeanwhile) {
  loop io({.spin = duration::zero()});
  Busybody first;
  std::deque<Busybody> added(200);
  auto add_half = [&, next = std::size_t{0}]() mutable {
    for (std::size_t i = 0; i < 100; ++i) io.add(added[next++]);
  };
  io.add(first);
  first.on_poll = [&] { add_half(); };
  first.on_arm = [&] { add_half(); };
  for (std::size_t i = 0; i < 100; ++i) added[i].ring();
  EXPECT_TRUE(io.turn());
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(added[i].heard, 1);
  EXPECT_TRUE(io.prepare());
  for (const Busybody& each : added) EXPECT_EQ(each.armed, 1);
}

// A source may remove and destroy itself and others, while the loop polls or arms it.
TEST(Loop, ForgetsSourcesThatAreRemovedMeanwhile) {
  for (const bool is_polled : {true, false}) {
    loop io({.spin = duration::zero()});
    std::vector<std::unique_ptr<Busybody>> all;
    for (int i = 0; i < 5; ++i) io.add(*all.emplace_back(std::make_unique<Busybody>()));
    const auto remove = [&](std::size_t which) {
      io.remove(*all[which]);
      all[which].reset();
    };
    const auto act = [&] {
      remove(0);
      remove(3);
      remove(2);  // the one that acts
    };
    (is_polled ? all[2]->on_poll : all[2]->on_arm) = act;
    EXPECT_FALSE(io.turn());
    EXPECT_TRUE(io.prepare());
    for (const std::size_t kept : {1, 4}) {
      EXPECT_EQ(all[kept]->armed, 1);
      all[kept]->ring();
    }
    EXPECT_TRUE(io.turn());
    for (const std::size_t kept : {1, 4}) EXPECT_EQ(all[kept]->heard, 1);
  }
}

// A coroutine that becomes ready while the loop arms its sources does not wait for an event.
TEST(Loop, DoesNotSleepOverWhatArmingHasWoken) {
  loop io({.spin = duration::zero()});
  Busybody bell;
  io.add(bell);
  bool has_run = false;
  bell.on_arm = [&] {
    io.spawn([&](loop&) -> task<> {
      has_run = true;
      co_return;
    });
  };
  EXPECT_FALSE(io.prepare());
  EXPECT_TRUE(io.turn());
  EXPECT_TRUE(has_run);
}

// The loop is driven by poll(2). A coroutine that is spawned between two turns wakes it.
TEST(Loop, MayBeDrivenByAnotherLoop) {
  loop io;
  std::vector<int> ran;
  const auto run_until_asleep = [&] {
    do {
      while (io.turn()) {
      }
    } while (!io.prepare());
  };
  run_until_asleep();
  pollfd ready{io.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
  io.spawn([&](loop&) -> task<> {
    ran.push_back(1);
    co_await io.sleep(1ms);
    ran.push_back(2);
  });
  while (ran.size() < 2) {
    ASSERT_EQ(::poll(&ready, 1, -1), 1);
    run_until_asleep();
  }
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
  EXPECT_EQ(io.running(), 0U);
}

TEST(Loop, SleepsUntilATimerIsDue) {
  loop io({.spin = duration::zero()});
  io.run([](loop& where) -> task<> { co_await where.sleep(1ms); });
}

// epoll(7) refuses them, and its "Operation not permitted" would not tell why.
TEST(Loop, SaysWhyItCannotWatchARegularFile) {
  struct File final : event_source {
    bool poll() override { return false; }
    bool arm() override { return true; }
    int fd() const override { return ::fileno(file); }
    std::FILE* const file = std::tmpfile();
  };
  loop io;
  File file;
  try {
    io.add(file);
    ADD_FAILURE();
  } catch (const std::system_error& thrown) {
    EXPECT_NE(std::string(thrown.what()).find("regular file"), std::string::npos) << thrown.what();
  }
  std::fclose(file.file);
}

}  // namespace
}  // namespace verbena
