// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "transport/queue_pair.h"

namespace verbena::transport {

// The bytes that stand before a datagram's payload in the receiver's memory.
inline constexpr uint32_t kGrhBytes = 40;

// What a receiver finds in front of a datagram (IBTA annex A17, 17.4.5): an IPv6 header, or twenty bytes of
// zeros and an IPv4 header with a right checksum, by which rdma-core tells the two apart.
void write_grh(const roce::Path& path, uint32_t udp_bytes, std::byte (&grh)[kGrhBytes]);

// A queue pair of the unreliable datagram service: each request is one packet to an address of its own,
// complete when sent.
class UdQueuePair : public QueuePair {
 public:
  using QueuePair::QueuePair;

  Verdict on_packet(const IncomingPacket& packet, TimePoint now) override;
  TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) override;
  bool has_urgent() const override;
  bool has_acknowledgement() const override { return false; }
  bool wants_ip_details() const override { return true; }
  bool has_outstanding() const override { return false; }
  void reroute() override { routed_to_.reset(); }
  TimePoint deadline() const override { return kNever; }
  void on_timer(TimePoint) override {}
  roce::Psn next_send_psn() const override { return next_; }
  roce::Psn next_receive_psn() const override { return roce::Psn(0); }

 protected:
  void on_enter(ibv_qp_state from, ibv_qp_state to) override;

 private:
  struct Destination {
    roce::Path path;
    uint32_t slot;
  };

  void route_to(const queues::SendWqe& wqe);
  SendStatus send(const queues::SendWqe& wqe);
  void fail_send(ibv_wc_status status);
  bool fits(size_t payload_bytes);
  void receive(const IncomingPacket& incoming);

  roce::Psn next_;
  std::optional<Destination> routed_to_;  // where route() leads
};

}  // namespace verbena::transport
