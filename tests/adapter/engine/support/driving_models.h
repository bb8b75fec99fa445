// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "adapter/engine/driving_policy.h"
#include "adapter/engine/support/driving_machine.h"

namespace verbena::engine {

// A model of a process for DrivingPolicy: the policy, packets in transit to the process, and its engine
// thread, which follows the policy as Shard does. The application is a separate thread, one of those below.
class ModelProcess {
 public:
  // Typical durations on current machines.
  static constexpr Duration kAsk{250};
  static constexpr Duration kPerPacket{1000};
  static constexpr Duration kPost{1500};
  static constexpr Duration kPause{250};  // between two polls
  static constexpr Duration kWire{3000};
  static constexpr Duration kTakenAway{50'000};

  explicit ModelProcess(Machine& machine) : machine_(machine), engine_(*this) {
    policy_.set_engine(true);
    policy_.set_halt_polling(true);
  }

  DrivingPolicy& policy() { return policy_; }
  // Sends a packet to this process.
  void send_to(TimePoint now) {
    arriving_.push_back(now + kWire);
    if (listening_) engine_.wake(arriving_.back());
  }
  // Makes arriving packets requests of `requester`, which this process answers without its application.
  void answers_to(ModelProcess& requester) { requester_ = &requester; }
  // Called with the time of each arrival: the packet is for the application, which asked for an event.
  std::function<void(TimePoint)> on_delivery;

  uint64_t received() const { return received_; }
  Duration engine_used() const { return engine_.used(); }
  uint64_t engine_visits() const { return visits_; }
  bool listening() const { return listening_; }

  // ---- verbs; each returns the time it takes

  Duration poll(TimePoint now, Machine::Thread& application) {
    if (now < locked_until_) {
      application_waits_ = true;
      return kAsk;
    }
    policy_.enters(now);
    const uint32_t received = receive(now);
    const DrivingPolicy::Polled verdict = policy_.polled(now, received);
    if (verdict.takes_over) {
      listening_ = false;
      engine_.wake(now);
    }
    if (verdict.yields) application.yield();
    return leave(now, kAsk + received * kPerPacket);
  }
  Duration post(TimePoint now, ModelProcess& peer) {
    if (now >= locked_until_) policy_.enters(now);
    peer.send_to(now + kPost);
    return leave(now, kPost);
  }
  Duration expect_sleep(TimePoint now) {
    if (policy_.expects_sleep()) listen(now);
    return leave(now, kAsk);
  }

 private:
  class Engine : public Machine::Thread {
   public:
    explicit Engine(ModelProcess& process) : Thread(process.machine_), process_(process) {}
    Duration step(TimePoint now) override { return process_.run_engine(now); }

   private:
    ModelProcess& process_;
  };

  uint32_t receive(TimePoint now) {
    uint32_t received = 0;
    for (; !arriving_.empty() && arriving_.front() <= now; arriving_.pop_front(), ++received) {
      ++received_;
      if (requester_ != nullptr) requester_->send_to(now + (received + 1) * kPerPacket);
      if (on_delivery) on_delivery(now);
    }
    return received;
  }
  void listen(TimePoint now) {
    listening_ = true;
    if (!arriving_.empty()) engine_.wake(std::max(now, arriving_.front()));
  }
  Duration leave(TimePoint now, Duration took) {
    policy_.leaves(now + took);
    locked_until_ = std::max(locked_until_, now + took);
    return took;
  }

  Duration run_engine(TimePoint now) {
    ++visits_;
    // Reports a loss of the processor while busy-polling, or that there are more threads than processors.
    if (policy_.asks(now)) {
      const Duration away = now - comes_back_at_;
      if (away >= kTakenAway) {
        policy_.asked_on(now, {.looked = true, .wanted = true, .lost = away});
      } else {
        policy_.asked_on(now, {.looked = true, .wanted = machine_.runnable() > machine_.processors()});
      }
    }
    if (now < locked_until_) {
      if (policy_.asks(now)) return kPause;
      engine_.sleep_until(policy_.finds_shard_busy(now));
      return kAsk;
    }
    if (const auto next_look = policy_.comes(now)) {
      engine_.sleep_until(*next_look);
      return kAsk;
    }
    const uint32_t received = receive(now);
    const Duration took = kAsk + received * (kPerPacket + kAsk);
    policy_.served(now, received);
    if (std::exchange(application_waits_, false)) policy_.application_waited(now + took);
    const DrivingPolicy::Rest rest = policy_.rests(now + took, {});
    locked_until_ = now + took;
    listening_ = false;
    comes_back_at_ = now + took + kPause;
    if (rest.asks) return took + kPause;
    engine_.sleep_until(rest.comes_at);
    listen(now + took);
    return took;
  }

  Machine& machine_;
  DrivingPolicy policy_;
  Engine engine_;
  std::deque<TimePoint> arriving_;
  ModelProcess* requester_ = nullptr;
  TimePoint locked_until_{};
  TimePoint comes_back_at_{};
  bool application_waits_ = false;
  bool listening_ = false;
  uint64_t received_ = 0;
  uint64_t visits_ = 0;
};

// The latencies that an application measures.
class Latencies {
 public:
  void add(Duration latency) { latencies_.push_back(latency); }
  size_t count() const { return latencies_.size(); }
  Duration percentile(size_t percent) {
    if (latencies_.empty()) return Duration::max();
    std::sort(latencies_.begin(), latencies_.end());
    return latencies_[(latencies_.size() - 1) * percent / 100];
  }

 private:
  std::vector<Duration> latencies_;
};

// An application that sends a request, busy-polls for the reply and sends the next. After each burst of
// requests it pauses.
class PollingRequester : public Machine::Thread {
 public:
  PollingRequester(Machine& machine, ModelProcess& own, ModelProcess& target)
      : Thread(machine), own_(own), target_(target) {}

  uint32_t burst = 1'000'000'000;
  Duration pause{};
  Latencies latencies;

  Duration step(TimePoint now) override {
    if (!began_) {
      began_ = now;
      answers_ = own_.received();
      return own_.post(now, target_);
    }
    if (own_.received() == answers_) return own_.poll(now, *this);
    latencies.add(now - *began_);
    began_.reset();
    if (latencies.count() % burst == 0) sleep_until(now + pause);
    return ModelProcess::kAsk;
  }

 private:
  ModelProcess& own_;
  ModelProcess& target_;
  std::optional<TimePoint> began_;
  uint64_t answers_ = 0;
};

// An application that replies to each message. It busy-polls for messages.
class PollingResponder : public Machine::Thread {
 public:
  PollingResponder(Machine& machine, ModelProcess& own, ModelProcess& requester)
      : Thread(machine), own_(own), requester_(requester) {}

  Duration step(TimePoint now) override {
    if (own_.received() == answered_) return wait(now);
    ++answered_;
    return own_.post(now, requester_);
  }

 protected:
  virtual Duration wait(TimePoint now) { return own_.poll(now, *this); }

  ModelProcess& own_;

 private:
  ModelProcess& requester_;
  uint64_t answered_ = 0;
};

// A responder that waits by reading its memory, without calling verbs.
class MemoryWatchingResponder : public PollingResponder {
  using PollingResponder::PollingResponder;
  Duration wait(TimePoint) override { return Machine::kTick; }
};

// A responder that sleeps until an event.
class SleepingResponder : public PollingResponder {
 public:
  SleepingResponder(Machine& machine, ModelProcess& own, ModelProcess& requester)
      : PollingResponder(machine, own, requester) {
    own.on_delivery = [this](TimePoint now) { wake(now); };
  }

 private:
  Duration wait(TimePoint now) override {
    sleep_until(kNever);
    return own_.expect_sleep(now);
  }
};

// A thread that only computes.
class Spinner : public Machine::Thread {
  using Thread::Thread;
  Duration step(TimePoint) override { return std::chrono::microseconds(1); }
};

}  // namespace verbena::engine
