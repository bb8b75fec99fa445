// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/queue_pair.h"
#include "transport/requester.h"
#include "transport/responder.h"

namespace verbena::transport {

// A queue pair of the reliable connected service.
class RcQueuePair : public QueuePair {
 public:
  using QueuePair::QueuePair;

  Verdict on_packet(const IncomingPacket& packet, TimePoint now) override;
  TransmitResult transmit(PacketSink& sink, TimePoint now, uint32_t budget,
                          bool with_acknowledgements) override;
  bool has_urgent() const override;
  bool has_acknowledgement() const override { return responder_.has_acknowledgement(); }
  bool may_gather() const override { return !responder_.has_urgent() && requester_.may_gather(); }
  bool has_outstanding() const override { return requester_.has_outstanding(); }
  TimePoint deadline() const override { return requester_.deadline(); }
  void on_timer(TimePoint now) override { requester_.on_timer(now); }
  roce::Psn next_send_psn() const override { return requester_.next_psn(); }
  roce::Psn next_receive_psn() const override { return responder_.expected_psn(); }

 protected:
  void on_enter(ibv_qp_state from, ibv_qp_state to) override;

 private:
  Requester requester_{*this};
  Responder responder_{*this};
  bool established_ = false;  // the peer has been heard of in RTR
};

}  // namespace verbena::transport
