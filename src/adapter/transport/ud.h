// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "adapter/transport/datagram_flow.h"
#include "adapter/transport/hold_budget.h"
#include "adapter/transport/queue_pair.h"

namespace verbena::transport {

// Length of the GRH before a datagram's payload in the receiver's memory, in bytes.
inline constexpr uint32_t kGrhBytes = 40;

// Writes the GRH of a datagram as its receiver gets it (IBTA annex A17, 17.4.5). It is an IPv6 header; or
// twenty zero bytes and an IPv4 header with a valid checksum, by which rdma-core tells the two apart.
// `udp_bytes` is the length of the UDP payload with ICRC.
void write_grh(const roce::Path& path, uint32_t udp_bytes, std::byte (&grh)[kGrhBytes]);

// A queue pair of the unreliable datagram service: each request is one packet with its own destination, and
// completes once the packet has left. A Verbena receiver sends receiver reports on request, so that senders
// send no more than the path carries (datagram_flow.h). Requests leave in order: a request that waits also
// delays requests to other destinations, as at an adapter's port, but not for long (hold_budget.h). Then it
// leaves without waiting for a report, or is lost if shared memory has no room for it.
class UdQueuePair : public QueuePair {
 public:
  using QueuePair::QueuePair;

  Verdict on_packet(const IncomingPacket& packet, TimePoint now) override;
  TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) override;
  bool has_urgent() const override;
  bool has_acknowledgement() const override { return false; }
  bool wants_ip_details() const override { return true; }
  bool has_outstanding() const override { return false; }
  void reroute() override { forget_route(); }
  TimePoint deadline() const override { return std::min(waits_until_, held_.until()); }
  void on_timer(TimePoint now) override {
    if (deadline() <= now) waits_until_ = kNever;
  }
  roce::Psn next_send_psn() const override { return next_; }
  roce::Psn next_receive_psn() const override { return roce::Psn(0); }

 protected:
  void on_enter(ibv_qp_state from, ibv_qp_state to) override;

 private:
  struct Destination {
    roce::Path path;
    roce::Qpn qpn;
    uint32_t qkey;  // of the latest datagram
  };

  void on_datagram(const IncomingPacket& incoming, TimePoint now);
  bool fits(size_t payload_bytes);
  [[gnu::cold]] void drop(protocol::TraceDrop why, const IncomingPacket& incoming);
  void receive(const IncomingPacket& incoming);
  void note_source(const IncomingPacket& incoming, TimePoint now);
  void on_word(const IncomingPacket& incoming, TimePoint now);
  void on_request(const IncomingPacket& incoming);
  void on_report(const IncomingPacket& incoming, TimePoint now);
  void on_notice(const roce::Address& from, TimePoint now);
  DatagramSources* sources();

  bool owes_word() const { return sources_ && sources_->is_due(); }
  SendStatus send_words();
  SendStatus send_words_to(DatagramSource& source);
  SendStatus send_receipt(const Route& route, DatagramSource& source);
  SendStatus ask_for_receipt();

  void route_to(const queues::SendWqe& wqe);
  bool is_route_coming() const;
  static constexpr Duration kRouteInterval = std::chrono::milliseconds(1);  // between attempts to find one
  void forget_route();
  DatagramFlow* flow_to(const Destination& destination);
  TransmitResult send_posted(TimePoint now, uint32_t budget);
  std::optional<TransmitResult> hold_back(TimePoint now);
  // Whether the oldest request, which has to wait, may still do so.
  bool may_wait(TimePoint now);
  bool do_others_wait();
  uint32_t qkey_of(const queues::SendWqe& wqe) const;
  SendStatus send(const queues::SendWqe& wqe);

  // ---- receiving side: remote senders; allocated at the first report request or ECN mark.
  std::unique_ptr<DatagramSources> sources_;

  // ---- sending side
  roce::Psn next_;
  std::optional<Destination> routed_to_;  // destination that route() leads to
  // Flow control for each destination, except over lossless routes; allocated for the first destination.
  std::unique_ptr<RecentPeers<DatagramFlow>> flows_;
  DatagramFlow* flow_ = nullptr;    // flow to routed_to_; null: sending is not limited
  TimePoint waits_until_ = kNever;  // the oldest request may not leave before this time; kNever: it may
  bool has_several_ = false;        // requests went to more than one destination
  HoldBudget held_;
};

}  // namespace verbena::transport
