// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/status_page.h"
#include "engine/shard.h"
#include "engine/support/queue_port.h"
#include "engine/support/scripted_qp.h"

namespace verbena::engine {

// Writes down what the shard tells whoever sleeps for it.
class RecordingSleeper : public Sleeper {
 public:
  void wake() override { calls.push_back("wake"); }
  void listen(bool on) override { calls.push_back(on ? "listen" : "do not listen"); }

  Result<void> attach(int, bool listening) override {
    if (attach_error != 0) return fail(attach_error);
    calls.push_back(listening ? "attach and listen" : "attach");
    return {};
  }
  void detach(int) override { calls.push_back("detach"); }

  // What was said since the last time.
  std::vector<std::string> said() { return std::exchange(calls, {}); }

  std::vector<std::string> calls;
  int attach_error = 0;  // what attach() answers if not success
};

// A shard with a scripted QP, a wire in memory, and nobody awake but the test.
class ShardTest : public testing::Test {
 protected:
  static constexpr uint32_t kSlot = 3;
  static constexpr uint32_t kPollsToTakeOver = 16;

  ShardTest() {
    auto queue_port = std::make_unique<QueuePort>(sent_packets, arriving_packets);
    port = queue_port.get();
    shard = std::make_unique<Shard>(kSlot, std::move(queue_port), *status, /*secret=*/5);
    shard->set_sleeper(&sleeper);
    qp = std::make_unique<ScriptedQp>(add_qpn());
    add(*qp);
  }
  ~ShardTest() override { shard->set_sleeper(nullptr); }

  roce::Qpn add_qpn() {
    return shard->exclusively([&] { return shard->reserve_qpn().value(); });
  }
  void add(ScriptedQp& q) {
    shard->exclusively([&] { shard->add(q); });
  }

  // The engine thread's first look, after which it listens.
  void engine_starts() {
    shard->run_engine();
    sleeper.said();
  }
  // The application polls until packets need not wake anybody, and the engine thread has noticed.
  void application_takes_over(uint32_t polls = kPollsToTakeOver) {
    for (uint32_t i = 0; i < polls; ++i) shard->poll();
    shard->run_engine();
    sleeper.said();
  }

  void packet_arrives_for(roce::Qpn destination) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    headers.destination = destination;
    arriving_packets.push(datagram(headers));
  }
  void packet_arrives() { packet_arrives_for(qp->config().qpn); }

  // What has gone out since the last time.
  std::vector<roce::Operation> sent() {
    std::vector<roce::Operation> operations;
    for (const roce::Headers& headers : sent_packets.drain()) operations.push_back(headers.operation());
    return operations;
  }

  uint64_t dropped(net::DropReason reason) const {
    return port->counters().dropped[static_cast<size_t>(reason)];
  }

  std::unique_ptr<control::StatusPage> status = std::make_unique<control::StatusPage>();
  PacketQueue sent_packets;
  PacketQueue arriving_packets;
  QueuePort* port = nullptr;
  RecordingSleeper sleeper;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<ScriptedQp> qp;
};

}  // namespace verbena::engine
