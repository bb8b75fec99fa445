// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/queues/completion_queue.h"
#include "adapter/transport/control_packets.h"
#include "adapter/transport/queue_pair.h"
#include "adapter/transport/rc.h"
#include "adapter/transport/support/memory.h"
#include "adapter/transport/support/post.h"
#include "adapter/transport/support/recording_sink.h"
#include "adapter/transport/support/test_routes.h"
#include "adapter/transport/support/xrc_halves.h"
#include "adapter/transport/ud.h"

namespace verbena::transport {

class EventLog : public QpEventListener, public queues::CompletionListener {
 public:
  void on_qp_event(ibv_event_type event) override { events.push_back(event); }
  void on_completion_event() override { ++completion_events; }
  void on_overflow() override { ++overflows; }

  std::vector<ibv_event_type> events;
  int completion_events = 0;
  int overflows = 0;
};

inline roce::Address ipv4(uint8_t last) {
  const uint8_t bytes[4] = {10, 0, 0, last};
  return roce::Address::from_ipv4(bytes);
}
inline roce::Path path_between(const roce::Address& source, const roce::Address& destination) {
  roce::Path path;
  path.source = source;
  path.destination = destination;
  return path;
}

struct EndpointOptions {
  uint32_t send_requests = 64;
  uint32_t recv_requests = 64;
  uint32_t cq_entries = 1024;
  bool signal_all = true;
  uint32_t qpn = 0x11;
  memory::KeyTable* keys = nullptr;                       // another endpoint's memory; null: its own
  queues::SharedReceiveQueue* srq = nullptr;              // null: its own receive queue
  const queues::SharedReceiveQueueTable* srqs = nullptr;  // for an XRC target, which has no protection domain
  uint64_t xrc_domain = 0;
  QueueOwners* owners = nullptr;  // for an XRC target: the shared receive queues of other processes
  bool repairs = true;            // repairs losses by SACK and retransmission of single packets
  congestion::Kind congestion = congestion::Kind::kFixed;
};

// A queue pair of type Qp with all its objects. A RecordingSink takes its packets.
template <class Qp>
class Endpoint {
 public:
  explicit Endpoint(const EndpointOptions& options = {}) {
    send_cq = *queues::CompletionQueue::create(options.cq_entries, &log);
    recv_cq = *queues::CompletionQueue::create(options.cq_entries, &log);
    QpConfig config;
    config.qpn = roce::Qpn(options.qpn);
    config.pd = options.srqs != nullptr ? 0 : kTestPd;
    config.srq = options.srq;
    config.srqs = options.srqs;
    config.xrc_domain = options.xrc_domain;
    config.owners = options.owners;
    config.signal_all = options.signal_all;
    config.repairs = options.repairs;
    config.congestion = options.congestion;
    config.send_cq = send_cq.get();
    config.recv_cq = recv_cq.get();
    config.keys = options.keys != nullptr ? options.keys : &memory.keys();
    config.routes = &routes;
    config.listener = &log;
    config.counters = &counters;
    config.more_counters = &more_counters;
    config.path_numbers = &path_numbers;
    config.progress = &progress;
    config.incast = &incast;
    constexpr uint32_t kLists = queues::kMaxSge * sizeof(ibv_sge);
    qp = std::make_unique<Qp>(config, *queues::SendQueue::create(options.send_requests, queues::kMaxInline),
                              *queues::RecvQueue::create(options.recv_requests, kLists));
    attributes().path = path_between(ipv4(1), ipv4(2));
    attributes().destination = roce::Qpn(0x22);
    attributes().path_mtu = 256;
    attributes().access = kAllAccess;
    attributes().send_psn = roce::Psn(100);
    attributes().receive_psn = roce::Psn(200);
    attributes().max_rd_atomic = 4;
    attributes().max_dest_rd_atomic = 4;
    attributes().min_rnr_timer = 12;  // 0.64 ms
    attributes().timeout = 14;        // 67 ms
    attributes().retry_count = 7;
    attributes().rnr_retry = 7;
  }

  QpAttributes& attributes() { return qp->attributes(); }
  uint64_t counter(QpCounter which) const {
    return which < kFirstMoreCounter ? counters[which].load()
                                     : more_counters[which - kFirstMoreCounter].load();
  }
  uint64_t path_number(PathNumber which) const { return path_numbers[which].load(); }

  void bring_up(ibv_qp_state to = IBV_QPS_RTS) {
    qp->enter(IBV_QPS_INIT);
    if (to == IBV_QPS_INIT) return;
    qp->enter(IBV_QPS_RTR);
    if (to == IBV_QPS_RTR) return;
    qp->enter(IBV_QPS_RTS);
  }

  // Returns the next completion. Fails the test if there is none.
  ibv_wc completion(queues::CompletionQueue& cq) {
    ibv_wc wc{};
    EXPECT_EQ(cq.poll(1, &wc), 1) << "no completion";
    return wc;
  }
  ibv_wc sent() { return completion(*send_cq); }
  ibv_wc received() { return completion(*recv_cq); }

  TransmitResult transmit(uint32_t budget = 100000, bool with_acknowledgements = true) {
    return qp->transmit(now, budget, with_acknowledgements);
  }
  std::vector<SentPacket> transmitted() {
    transmit();
    std::vector<SentPacket> all(std::make_move_iterator(sink.packets.begin()),
                                std::make_move_iterator(sink.packets.end()));
    sink.packets.clear();
    return all;
  }

  // Delivers a packet, or a super-packet of `count` packets.
  Verdict receive(const roce::Headers& headers, ConstBytes payload = {}, uint32_t count = 1) {
    const roce::Packet packet{headers, payload, count};
    const roce::Path path = path_between(attributes().path.destination, attributes().path.source);
    const auto udp_bytes = static_cast<uint32_t>(roce::header_bytes(headers.opcode) + payload.size() +
                                                 headers.pad + roce::kIcrcBytes);
    return qp->on_packet({packet, path, udp_bytes}, now);
  }

  // Delivers the message and its acknowledgement. With `plainly`, tries on_plain_send() first; `is_plain`
  // returns whether that accepted it. Otherwise uses on_packet().
  Verdict receive_send(const PlainSend& message, bool plainly = true, bool* is_plain = nullptr) {
    const roce::Path path = path_between(attributes().path.destination, attributes().path.source);
    std::optional<Verdict> verdict;
    if (plainly) verdict = qp->on_plain_send(message, path, now);
    if (is_plain != nullptr) *is_plain = verdict.has_value();
    if (verdict) return *verdict;
    const roce::Packet packet{headers_of(message.headers), message.payload, message.count};
    return qp->on_packet({packet, path, 0, message.acknowledgement}, now);
  }

  // Delivers a batch of one-packet messages.
  Verdict receive_messages(const roce::Headers& headers, ConstBytes payload,
                           std::span<const uint8_t> lengths) {
    const roce::Packet packet{headers, payload, static_cast<uint32_t>(lengths.size())};
    const roce::Path path = path_between(attributes().path.destination, attributes().path.source);
    return qp->on_packet({packet, path, 0, nullptr, lengths}, now);
  }

  // Advances time to the deadline and runs the timer. Fails the test if there is none.
  void wait_for_timer() {
    ASSERT_NE(qp->deadline(), kNever);
    now = qp->deadline();
    qp->on_timer(now);
  }

  RecordingSink sink;
  TestRoutes routes{sink};
  TestMemory memory;
  EventLog log;
  QpCounters counters{};
  QpMoreCounters more_counters{};
  std::atomic<uint64_t> progress{0};
  PathNumbers path_numbers{};
  IncastMeter incast;
  std::unique_ptr<queues::CompletionQueue> send_cq;
  std::unique_ptr<queues::CompletionQueue> recv_cq;
  std::unique_ptr<Qp> qp;
  TimePoint now{std::chrono::seconds(1)};
};

// Return headers of packets that a peer sends to the endpoint's QP.
inline roce::Headers headers_of(roce::Service service, roce::Operation operation, uint32_t psn) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(service, operation);
  headers.destination = roce::Qpn(0x11);
  headers.psn = roce::Psn(psn);
  return headers;
}
inline roce::Headers rc_headers(roce::Operation operation, uint32_t psn) {
  return headers_of(roce::Service::kRc, operation, psn);
}
// Returns a requester's confirmation that it understands SACKs (kHeardOpcode). `psn` is the PSN that it
// expects the responder to have reached.
inline roce::Headers heard_at(roce::Psn psn) {
  roce::Headers headers;
  headers.opcode = roce::kSackConfirmationOpcode;
  headers.destination = roce::Qpn(0x11);
  headers.psn = psn - Sack::kPast;
  return headers;
}

}  // namespace verbena::transport
