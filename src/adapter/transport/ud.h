// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "adapter/transport/queue_pair.h"
#include "adapter/transport/receiver_driven_flow.h"
#include "base/time.h"

namespace verbena::transport {

// Limits how long the oldest request of a UD queue pair may wait, while requests behind it go to other
// destinations. A receiver that reports slowly, or a stopped process on this host, could otherwise stop the
// traffic to everybody else. Waiting uses up a budget: at most 250 ms in a row, and three quarters of the
// time in the long run. A busy machine may leave a process without the processor for tenths of a second, so
// shorter limits would lose datagrams to honest receivers.
//
// Reads no clock. Threads: the caller holds the shard's lock.
class HoldBudget {
 public:
  static constexpr Duration kMax = std::chrono::milliseconds(250);
  // Without waiting, each unit of time earns this many units of waiting time, up to kMax.
  static constexpr int kEarned = 3;

  // Call when the oldest request must wait, or must still wait.
  void begin(TimePoint now) {
    if (is_holding()) return;
    budget_ = std::min<Duration>(kMax, budget_ + kEarned * std::min<Duration>(kMax, now - ended_at_));
    until_ = now + budget_;
    since_ = now;
  }
  // Call when the oldest request waits no more.
  void end(TimePoint now) {
    if (!is_holding()) return;
    budget_ = std::max(Duration(0), budget_ - (now - since_));
    ended_at_ = now;
    until_ = kNever;
  }
  // When the request must not wait any longer; kNever if none waits.
  TimePoint until() const { return until_; }

 private:
  bool is_holding() const { return until_ != kNever; }

  Duration budget_ = kMax;
  TimePoint ended_at_{};
  TimePoint since_{};
  TimePoint until_ = kNever;
};

// Length of the GRH before a datagram's payload in the receiver's memory, in bytes.
inline constexpr uint32_t kGrhBytes = 40;

// Writes the GRH of a datagram as its receiver gets it (IBTA annex A17, 17.4.5). The GRH is an IPv6 header;
// or, for IPv4, twenty zero bytes and an IPv4 header. The IPv4 header's checksum is valid: rdma-core tells
// IPv4 and IPv6 apart by it. `udp_bytes` is the length of the UDP payload with ICRC.
void write_grh(const roce::Path& path, uint32_t udp_bytes, std::byte (&grh)[kGrhBytes]);

// A queue pair of the unreliable datagram service: each request is one packet with its own destination, and
// completes once the packet has left. A Verbena receiver sends receiver reports on request, so that senders
// send no more than the path carries (receiver_driven_flow.h). Requests leave in order: a request that waits
// also delays requests to other destinations, as at an adapter's port. The delay is limited (HoldBudget).
// After that, the request leaves without waiting for a report, or is lost if shared memory has no room for
// it.
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
  TransmitResult wait_for_port(TimePoint now);
  // Whether the oldest request, which would have to wait, may still wait.
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
