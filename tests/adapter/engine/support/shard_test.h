// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "adapter/engine/shard.h"
#include "adapter/engine/support/queue_port.h"
#include "adapter/engine/support/scripted_qp.h"
#include "control/protocol/status_page.h"

namespace verbena::engine {

// Records the calls that the shard makes to its Sleeper.
class RecordingSleeper : public Sleeper {
 public:
  void wake() override { calls.push_back("wake"); }
  void listen(bool on) override { calls.push_back(on ? "listen" : "do not listen"); }

  Result<void> attach(int, bool listening) override {
    if (attach_error != 0) return fail(attach_error);
    calls.push_back(listening ? "attach and listen" : "attach");
    return {};
  }
  Result<void> attach_set(int) override { return {}; }
  void detach(int) override { calls.push_back("detach"); }
  Result<void> attach_bell(const Bell*) override { return {}; }
  void hear_bell(bool on) override { hears_bell = on; }
  void come_by(TimePoint time) override { comes_by = time; }

  // Returns the calls since the last time.
  std::vector<std::string> said() { return std::exchange(calls, {}); }

  std::vector<std::string> calls;
  bool hears_bell = false;
  TimePoint comes_by = kNever;  // last value passed to come_by()
  int attach_error = 0;         // result of attach(); 0: success
};

// A fixture with a shard, a scripted QP and a wire in memory. No engine thread runs: the test makes its
// calls, and sets the time.
class ShardTest : public testing::Test {
 protected:
  static constexpr uint32_t kSlot = 3;
  static constexpr Duration kTakeOverAfter = std::chrono::microseconds(100);
  static constexpr Duration kBetweenPolls = std::chrono::microseconds(1);
  // After this time without a verb, an application no longer counts as polling.
  static constexpr Duration kAbsence = std::chrono::microseconds(60);

  explicit ShardTest(Shard::Clock clock = now) {
    auto queue_port = std::make_unique<QueuePort>(sent_packets, arriving_packets);
    port = queue_port.get();
    shard = std::make_unique<Shard>(kSlot, only(std::move(queue_port)), *status, /*beginning=*/5, clock);
    shard->set_sleeper(&sleeper);
    qp = std::make_unique<ScriptedQp>(add_qpn(), &shard->routes());
    add(*qp);
  }
  ~ShardTest() override { shard->set_sleeper(nullptr); }

  roce::Qpn add_qpn() {
    return shard->exclusively([&] { return shard->reserve_qpn().value(); });
  }
  void add(ScriptedQp& q) {
    shard->exclusively([&] { shard->add(q); });
  }

  // Makes the engine thread's first call, after which it listens.
  void engine_starts() {
    shard->run_engine();
    sleeper.said();
  }
  static TimePoint now() { return time_; }
  static void passes(Duration duration) { time_ += duration; }

  // Lets the application busy-poll for this time.
  void polls_for(Duration duration) {
    for (const TimePoint end = now() + duration; now() < end; passes(kBetweenPolls)) shard->poll();
    shard->poll();
  }
  // Lets the application busy-poll until packets wake nobody, and the engine thread has noticed.
  void application_takes_over(Duration after = kTakeOverAfter) {
    polls_for(after);
    shard->run_engine();
    sleeper.said();
  }
  // Lets the application stop polling, and the engine thread notice that.
  void polling_stops() {
    passes(kAbsence);
    shard->run_engine();
  }

  void packet_arrives_for(roce::Qpn destination) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    headers.destination = destination;
    arriving_packets.push(datagram(headers));
  }
  void packet_arrives() { packet_arrives_for(qp->config().qpn); }

  // Returns the operations of the packets sent since the last time.
  std::vector<roce::Operation> sent() {
    std::vector<roce::Operation> operations;
    for (const roce::Headers& headers : sent_packets.drain()) operations.push_back(headers.operation());
    return operations;
  }

  uint64_t dropped(net::DropReason reason) const {
    return port->counters().dropped[static_cast<size_t>(reason)];
  }

  std::unique_ptr<protocol::StatusPage> status = std::make_unique<protocol::StatusPage>();
  PacketQueue sent_packets;
  PacketQueue arriving_packets;
  QueuePort* port = nullptr;
  RecordingSleeper sleeper;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<ScriptedQp> qp;

 private:
  static inline TimePoint time_{std::chrono::hours(1)};
};

}  // namespace verbena::engine
