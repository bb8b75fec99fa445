// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/control_packets.h"
#include "adapter/transport/inbound.h"
#include "adapter/transport/incast.h"
#include "adapter/transport/queue_pair.h"
#include "adapter/transport/receiver_driven_flow.h"

namespace verbena::transport {

// A queue pair of the unreliable connected service (IBTA volume 1, 9.8): SENDs and RDMA WRITEs complete once
// all their packets have left. The receiver drops a whole message if a packet of it is missing or no receive
// request is posted. Data that an RDMA WRITE has already written stays. A Verbena peer sends receiver
// reports, so that this QP sends no more than the path carries (control_packets.h).
class UcQueuePair : public QueuePair {
 public:
  UcQueuePair(const QpConfig& config, queues::SendQueue send_queue, queues::RecvQueue recv_queue)
      : QueuePair(config, std::move(send_queue), std::move(recv_queue)) {}

  Verdict on_packet(const IncomingPacket& packet, TimePoint now) override;
  TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) override;
  bool has_urgent() const override;
  bool has_acknowledgement() const override { return false; }
  // Needed for ECN marks, which are in the traffic class. Only a QP with congestion control uses these.
  bool wants_ip_details() const override { return config().repairs; }
  bool has_outstanding() const override { return false; }
  void reroute() override;
  TimePoint deadline() const override { return std::min(paced_until_, flow_.deadline()); }
  void on_timer(TimePoint now) override {
    if (paced_until_ <= now) paced_until_ = kNever;
    flow_.on_timer(now);
  }
  roce::Psn next_send_psn() const override { return next_; }
  roce::Psn next_receive_psn() const override { return expected_; }

 protected:
  void on_enter(ibv_qp_state from, ibv_qp_state to) override;

 private:
  void on_message_packet(const IncomingPacket& incoming, TimePoint now);
  void on_report(const roce::Packet& packet, TimePoint now);
  void on_heard(roce::Psn psn);
  bool owes_word() const { return notices_.is_due() || owed_.is_due() || flow_.owes_thanks(); }
  SendStatus send_words();
  SendStatus send_receipt();
  SendStatus send_thanks();
  void begin_flow(roce::Psn first);
  void show_path();
  void receive(const roce::Packet& packet);
  [[gnu::cold]] void say_dropped(protocol::TraceDrop why, const roce::Packet& packet, roce::NakCode code);
  TransmitResult send_posted(TimePoint now, uint32_t budget);
  SendStatus send_packet(const queues::SendWqe& wqe, TimePoint now);
  bool may_send() const;
  // Whether the oldest request has started: some of its packets have left, or it has been executed here.
  bool has_begun() const { return packet_ > 0 || users_ != 0; }
  bool execute_here(const queues::SendWqe& wqe);
  void complete_sent(const queues::SendWqe& wqe);

  // ---- receiving side
  Inbound inbound_{*this};
  roce::Psn expected_;
  bool established_ = false;  // a packet of the peer has come in RTR
  ReportsOwed owed_;
  CongestionNotices notices_;
  IncastShare incast_;

  // ---- sending side
  roce::Psn next_;
  uint32_t packet_ = 0;  // packets of the current request that have left
  ReceiverDrivenFlow flow_;
  TimePoint paced_until_ = kNever;
  // Identifies the accesses that may still use the key that the oldest request has invalidated. The value
  // comes from memory::KeyTable::users() and is for are_gone(); it is not a count. 0 if there are none.
  uint64_t users_ = 0;
};

}  // namespace verbena::transport
