// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/queue_pair.h"
#include "adapter/transport/requester.h"
#include "adapter/transport/responder.h"

namespace verbena::transport {

// A queue pair of a reliable service. RC has a requester and a responder. In XRC, an initiator QP has only a
// requester, and a target QP only a responder. The target takes receive requests from the shared receive
// queue whose number is in each packet (IBTA volume 1, annex A14).
class RcQueuePair : public QueuePair {
 public:
  enum class Role : uint8_t { kRc, kXrcInitiator, kXrcTarget };

  RcQueuePair(const QpConfig& config, queues::SendQueue send_queue, queues::RecvQueue recv_queue,
              Role role = Role::kRc)
      : QueuePair(config, std::move(send_queue), std::move(recv_queue)),
        role_(role),
        service_(role == Role::kRc ? roce::Service::kRc : roce::Service::kXrc) {}

  Verdict on_packet(const IncomingPacket& packet, TimePoint now) override;
  std::optional<Verdict> on_plain_send(const PlainSend& message, const roce::Path& path,
                                       TimePoint now) override;
  TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) override;
  bool send_at_once(TimePoint now) override;
  // Sends the acknowledgement that is due, even if requests wait: they are an independent stream. Does
  // nothing while the responder has READ responses, SACKs or NAKs to send. The acknowledgement must not
  // overtake responses and NAKs, which also acknowledge.
  void transmit_acknowledgement() override {
    if (!responder_.has_urgent()) (void)responder_.transmit_acknowledgement();
  }
  bool has_urgent() const override;
  bool has_acknowledgement() const override { return responder_.has_acknowledgement(); }
  bool may_gather() const override { return !responder_.has_urgent() && requester_.may_gather(); }
  bool has_outstanding() const override { return requester_.has_outstanding(); }
  // Needed for ECN marks, which are in the traffic class. Only a QP with congestion control uses these.
  bool wants_ip_details() const override { return config().repairs; }
  bool takes_direct_access() const override {
    return role_ == Role::kRc && (state() == IBV_QPS_RTR || state() == IBV_QPS_RTS);
  }
  void reroute() override;
  TimePoint deadline() const override { return std::min(requester_.deadline(), responder_.deadline()); }
  void on_timer(TimePoint now) override {
    requester_.on_timer(now);
    responder_.on_timer(now);
  }
  void on_owner_answer(const OwnerAnswer& answer) override { responder_.on_owner_answer(answer); }
  void on_owner_gone(uint32_t owner, roce::NakCode code) override { responder_.on_owner_gone(owner, code); }
  roce::Psn next_send_psn() const override { return requester_.next_psn(); }
  roce::Psn next_receive_psn() const override { return responder_.expected_psn(); }
  uint64_t receive_progress() const override { return responder_.progress(); }

 protected:
  void on_enter(ibv_qp_state from, ibv_qp_state to) override;
  void synchronize(roce::Psn expected, uint32_t msn) { responder_.synchronize(expected, msn); }

 private:
  // Whether a QP of this role takes packets with these headers. An XRC initiator takes no requests, an XRC
  // target takes no responses.
  bool has_half_for(const roce::Headers& headers) const {
    return role_ != (headers.info().is_request ? Role::kXrcInitiator : Role::kXrcTarget);
  }

  void find_route_anew();
  void on_marked(const roce::Headers& headers, TimePoint now);
  bool understands(uint8_t opcode) const;
  void hear(const roce::Packet& word, TimePoint now);

  const Role role_;
  const roce::Service service_;
  CongestionNotices notices_;
  IncastShare incast_;
  Requester requester_{*this, service_};
  Responder responder_{*this, service_};
  bool established_ = false;     // a request of the peer has come in RTR
  bool reroute_wanted_ = false;  // change the route as soon as nothing is outstanding
};

}  // namespace verbena::transport
