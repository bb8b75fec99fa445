// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>

#include "adapter/transport/queue_pair.h"

namespace verbena::engine {

// A queue pair controlled by the test, for tests of the shard alone. Its requests are SEND ONLY packets
// without content; only their number matters.
class ScriptedQp : public transport::QueuePair, private transport::QpEventListener {
 public:
  explicit ScriptedQp(roce::Qpn qpn, transport::Routes* routes = nullptr, const roce::Path& path = {},
                      roce::Qpn destination = roce::Qpn(0x22), ibv_qp_type type = {})
      : QueuePair(config_for(qpn, routes, type, *this), {}, {}) {
    attributes().destination = destination;
    attributes().path = path;
    find_route(attributes().path, attributes().destination);
  }

  // Posts one more request. Any thread may call it.
  void post() { posted_.fetch_add(1); }
  uint32_t unsent() const { return posted_.load() - sent_.load(); }

  transport::Verdict on_packet(const transport::IncomingPacket&, TimePoint) override {
    ++received;
    if (acknowledges) owes_acknowledgement = true;
    return transport::Verdict::kAccepted;
  }

  transport::TransmitResult transmit(TimePoint, uint32_t budget, bool with_acknowledgements) override {
    if (on_transmit) std::exchange(on_transmit, nullptr)();
    for (; unsent() > 0; sent_.fetch_add(1)) {
      if (budget-- == 0) return transport::TransmitResult::kMore;
      if (!send(roce::Operation::kSendOnly)) return transport::TransmitResult::kBusy;
    }
    if (with_acknowledgements) transmit_acknowledgement();
    return with_acknowledgements && owes_acknowledgement ? transport::TransmitResult::kBusy
                                                         : transport::TransmitResult::kIdle;
  }
  void transmit_acknowledgement() override {
    if (owes_acknowledgement && send(roce::Operation::kAcknowledge)) owes_acknowledgement = false;
  }

  bool send_at_once(TimePoint now) override {
    return sends_at_once && transmit(now, UINT32_MAX, false) == transport::TransmitResult::kIdle;
  }

  void reroute() override { find_route(attributes().path, attributes().destination); }
  bool has_urgent() const override { return unsent() > 0; }
  bool has_acknowledgement() const override { return owes_acknowledgement; }
  bool may_gather() const override { return gathers; }
  bool has_outstanding() const override { return false; }
  TimePoint deadline() const override { return due; }
  void on_timer(TimePoint now) override {
    timer_fired_at = now;
    due = kNever;
  }
  roce::Psn next_send_psn() const override { return {}; }
  roce::Psn next_receive_psn() const override { return {}; }

  // Access these only while no other thread is in the shard.
  bool acknowledges = true;
  bool owes_acknowledgement = false;
  bool gathers = false;
  bool sends_at_once = false;
  uint32_t received = 0;
  TimePoint due = kNever;
  TimePoint timer_fired_at = kNever;
  std::function<void()> on_transmit;  // called once

 private:
  static transport::QpConfig config_for(roce::Qpn qpn, transport::Routes* routes, ibv_qp_type type,
                                        ScriptedQp& self) {
    transport::QpConfig config;
    config.type = type;
    config.routes = routes;
    config.qpn = qpn;
    config.listener = &self;
    config.counters = &self.counters_;
    return config;
  }

  bool send(roce::Operation operation) {
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, operation);
    headers.destination = attributes().destination;
    return send_out({attributes().path, headers, {}, 0}) == transport::SendStatus::kSent;
  }

  void on_enter(ibv_qp_state, ibv_qp_state) override {}
  void on_qp_event(ibv_event_type) override {}

  std::atomic<uint32_t> posted_{0};
  std::atomic<uint32_t> sent_{0};
  transport::QpCounters counters_{};
};

}  // namespace verbena::engine
