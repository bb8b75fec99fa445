// SPDX-License-Identifier: Apache-2.0
// Who hears a shard's bell, in arbitrary order: threads that sleep until an event, poll, compute, are
// interrupted; packets that come at any moment; the engine thread. One step at a time, each with the lock
// held from its beginning to its end, as the shard's lock makes it. No packet may wait for nobody.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <random>
#include <semaphore>
#include <thread>

#include <poll.h>

#include "adapter/engine/support/queue_input.h"
#include "adapter/engine/support/shard_test.h"
#include "base/seed.h"

namespace verbena::engine {
namespace {

using AtBell = Shard::AtBell;

// A thread that does one thing at a time, when it is told: the shard tells threads apart.
class SteppedThread {
 public:
  SteppedThread() = default;
  ~SteppedThread() {
    stop_ = true;
    begin_.release();
    thread_.join();
  }
  template <class Step>
  void does(Step step) {
    step_ = std::move(step);
    begin_.release();
    done_.acquire();
  }

 private:
  void run() {
    for (;;) {
      begin_.acquire();
      if (stop_) return;
      step_();
      done_.release();
    }
  }

  std::function<void()> step_;
  bool stop_ = false;
  std::binary_semaphore begin_{0};
  std::binary_semaphore done_{0};
  std::thread thread_{[this] { run(); }};
};

// An application's thread that waits for events of its own channel.
struct Application {
  enum class State : uint8_t { kAwake, kAsks, kAtBell, kAtDescriptor };

  std::unique_ptr<queues::EventChannel> channel = *queues::EventChannel::create();
  queues::EventSource source;
  std::optional<queues::EventChannel::Waiter> waiter;
  State state = State::kAwake;
  uint32_t delivered = 0;
  uint32_t taken = 0;
  SteppedThread thread;
};

constexpr size_t kApplications = 3;
using Applications = std::array<Application, kApplications>;

// What comes by memory: each packet is an event for one of the threads.
class EventInput : public QueueInput {
 public:
  EventInput(Shard& shard, transport::QueuePair& qp, Applications& applications)
      : QueueInput(shard, qp), applications_(applications) {}

  bool is_memory() const override { return true; }
  const Bell* bell() const override { return &bell_; }
  bool listen(bool on) override {
    listening_ = on;
    return on && !coming_.empty();
  }
  uint32_t receive(uint32_t, TimePoint) override {
    uint32_t received = 0;
    for (; !coming_.empty(); coming_.pop_back(), ++received) {
      Application& application = applications_[coming_.back()];
      application.channel->post(application.source);
      ++application.delivered;
    }
    return received;
  }
  void packet_comes_for(size_t application) {
    coming_.push_back(application);
    if (std::exchange(listening_, false)) bell_.ring();
  }
  bool has_some() const { return !coming_.empty(); }
  bool has_rung() const {
    pollfd entry{bell_.fd(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }

 private:
  Applications& applications_;
  std::vector<size_t> coming_;
  bool listening_ = false;
  Bell bell_ = *Bell::make();
};

// With threads that ask on before they sleep, or without.
class BellSimulation : public ShardTest, public testing::WithParamInterface<bool> {
 protected:
  BellSimulation() {
    shard->set_halt_polling(GetParam());
    EXPECT_TRUE(shard->exclusively([&] { return shard->add_input(input); }));
    run_engine();
  }
  ~BellSimulation() override {
    for (Application& application : applications) {
      const bool is_there =
          application.state == Application::State::kAtBell || application.state == Application::State::kAsks;
      if (is_there) interrupt(application);
    }
    shard->exclusively([&] { shard->remove_input(input); });
  }

  uint32_t pick(uint32_t below) { return std::uniform_int_distribution<uint32_t>(0, below - 1)(random); }

  // ---- the engine thread

  TimePoint engine_comes_at() const { return std::min(engine_wakes_at, sleeper.comes_by); }
  bool engine_may_run() const {
    return engine_comes_at() <= now() || std::ranges::find(sleeper.calls, "wake") != sleeper.calls.end() ||
           (sleeper.hears_bell && input.has_rung());
  }
  void run_engine() {
    if (sleeper.comes_by <= now()) sleeper.comes_by = kNever;
    if (sleeper.hears_bell && input.has_rung()) {
      sleeper.hears_bell = false;  // it is told once
      (void)input.bell()->hear();
    }
    sleeper.said();
    const Shard::EngineView view = shard->run_engine(engine_noticed);
    engine_wakes_at = view.asks ? now() : view.wake_at;
    engine_noticed = {.looked = view.asks, .wanted = view.asks && pick(16) == 0};
    std::erase_if(sleeper.calls, [](const std::string& call) { return call != "wake"; });
  }

  // ---- the application's threads

  void take(Application& application) {
    ASSERT_TRUE(application.waiter->take([](queues::EventSource&) {}));
    ++application.taken;
    application.waiter.reset();
    application.state = Application::State::kAwake;
  }
  // What ibv_get_cq_event() does until it sleeps, ...
  void wait(Application& application) {
    if (application.channel->has_some()) return read(application);
    application.waiter.emplace(*application.channel, *input.bell());
    goes_on(application, shard->goes_to_bell(*application.waiter));
  }
  void goes_on(Application& application, AtBell answer) {
    switch (answer) {
      case AtBell::kServed:
        return take(application);
      case AtBell::kAsks:
        ++asked;
        application.state = Application::State::kAsks;
        return;
      case AtBell::kSleeps:
        application.state = Application::State::kAtBell;
        return;
      case AtBell::kNot:
        application.state = Application::State::kAtDescriptor;
        application.waiter.reset();
    }
  }
  // ... when it asks on, ...
  void asks_on(Application& application) {
    const Demand demand{.looked = true, .wanted = pick(16) == 0};
    goes_on(application, shard->looks_at_bell(*application.waiter, demand));
  }
  // ... when the bell has rung, ...
  void woken(Application& application) {
    if (!input.bell()->hear()) return;
    goes_on(application, shard->looks_at_bell(*application.waiter));
  }
  // ... and when the descriptor is readable.
  void read(Application& application) {
    ASSERT_TRUE(application.channel->take([](queues::EventSource&) {}));
    ++application.taken;
    application.state = Application::State::kAwake;
  }
  void interrupt(Application& application) {
    application.thread.does([&] {
      shard->gives_bell_up();
      application.waiter.reset();
      application.state = Application::State::kAwake;
    });
  }
  static bool is_readable(const Application& application) {
    pollfd entry{application.channel->fd(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  bool may_run(const Application& application) const {
    switch (application.state) {
      case Application::State::kAwake:
        return false;  // it computes for as long as it likes
      case Application::State::kAsks:
        return true;
      case Application::State::kAtBell:
        return input.has_rung();
      case Application::State::kAtDescriptor:
        return is_readable(application);
    }
    return false;
  }
  void run(Application& application) {
    application.thread.does([&] {
      switch (application.state) {
        case Application::State::kAwake: {
          const uint32_t what = pick(8);
          if (what == 0) return shard->poll();
          if (what == 1) return shard->expect_sleep();
          if (what < 6) return wait(application);
          return;
        }
        case Application::State::kAsks:
          return asks_on(application);
        case Application::State::kAtBell:
          return woken(application);
        case Application::State::kAtDescriptor:
          return read(application);
      }
    });
  }

  bool anybody_may_run() const {
    return engine_may_run() ||
           std::ranges::any_of(applications, [&](const Application& each) { return may_run(each); });
  }
  // Nobody runs but who computes, and may do so without end.
  void expect_that_nothing_is_lost() {
    if (input.has_some()) {
      ASSERT_LE(engine_comes_at() - now(), kLookInterval) << "a packet waits for nobody";
    }
    for (const Application& application : applications) {
      if (application.state == Application::State::kAwake) continue;
      ASSERT_EQ(application.taken, application.delivered)
          << "a thread sleeps though there is an event for it";
    }
  }

  std::mt19937 random{test::seed()};
  Applications applications;
  EventInput input{*shard, *qp, applications};
  TimePoint engine_wakes_at = kNever;
  Demand engine_noticed;
  uint32_t asked = 0;
};

TEST_P(BellSimulation, NoPacketWaitsForNobodyInWhateverOrderThingsHappen) {
  uint32_t sent_to_sleepers = 0;
  for (int step = 0; step < 15'000 && !HasFatalFailure(); ++step) {
    Application& application = applications[pick(kApplications)];
    switch (pick(6)) {
      case 0:
        if (application.delivered - application.taken < 4) {
          input.packet_comes_for(pick(kApplications));
          if (application.state != Application::State::kAwake) ++sent_to_sleepers;
        }
        break;
      case 1:
        if (engine_may_run()) run_engine();
        break;
      case 2:
        if (application.state == Application::State::kAtBell && pick(16) == 0) interrupt(application);
        break;
      case 3:
        passes(std::chrono::microseconds(pick(pick(8) == 0 ? 3000 : 20)));
        break;
      default:
        if (application.state == Application::State::kAwake || may_run(application)) run(application);
    }
    if (!anybody_may_run()) expect_that_nothing_is_lost();
  }
  EXPECT_GT(sent_to_sleepers, 100u);
  EXPECT_EQ(asked > 0, GetParam());
  // Everything is taken in the end, by who is rung or the engine thread, though all others compute.
  const TimePoint end = now() + std::chrono::seconds(1);
  while (input.has_some() && now() < end) {
    for (Application& application : applications) {
      if (may_run(application)) run(application);
    }
    if (engine_may_run()) run_engine();
    passes(std::chrono::microseconds(10));
  }
  EXPECT_FALSE(input.has_some());
}

INSTANTIATE_TEST_SUITE_P(Threads, BellSimulation, testing::Bool(),
                         [](const auto& asks_on) { return asks_on.param ? "AskOn" : "SleepAtOnce"; });

}  // namespace
}  // namespace verbena::engine
