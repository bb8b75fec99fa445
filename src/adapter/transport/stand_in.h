// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "adapter/transport/queue_owners.h"
#include "adapter/transport/rc.h"

namespace verbena::transport {

class StandIn;

// Receives the answers of stand-ins to the targets that they stand in for.
class StandInAnswers {
 public:
  virtual ~StandInAnswers() = default;
  // `after_packets`: the answer covers responses that were just put on the wire and should arrive first. (The
  // receiver fills in answer.owner: it knows which peer answered.)
  virtual void answer(const StandIn& stand_in, const OwnerAnswer& answer, bool after_packets) = 0;
};

namespace delegate_detail {

// Lies between a StandIn (below) and its route. Sends response packets to the requester. ACKs and NAKs become
// StandIn::answer(), for the XRC target that it stands in for.
class Splitter final : public PacketSink, public Routes {
 public:
  Splitter(StandIn& stand_in, Routes* routes) : stand_in_(stand_in), routes_(routes) {}

  const Route& find(const roce::Path& path, roce::Qpn destination) override;
  SendStatus send(const OutgoingPacket& packet) override;
  // Call when everything was sent that could be. Responses also acknowledge: passes that on to the target,
  // where no acknowledgement has followed them.
  void finish();

 private:
  StandIn& stand_in_;
  Routes* const routes_;
  PacketSink* wire_ = no_route().sink;
  Route route_;
  bool responded_ = false;
  roce::Psn psn_;
  uint32_t msn_ = 0;
};

// Parts that a stand-in's QueuePair needs during construction.
struct Parts : QpEventListener {
  Parts(StandIn& stand_in, Routes* routes) : splitter(stand_in, routes) {}

  void on_qp_event(ibv_event_type event) override {
    if (event == IBV_EVENT_QP_ACCESS_ERR || event == IBV_EVENT_QP_REQ_ERR || event == IBV_EVENT_QP_FATAL)
      failure = event;
  }
  Splitter splitter;
  QpCounters own_counters{};  // unused: the target counts
  std::optional<ibv_event_type> failure;
};

}  // namespace delegate_detail

// Stands in for another process's XRC target, in the process that owns the shared receive queue. Executes the
// requests that the target found in sequence and forwarded. It is an XRC target, too, but its
// acknowledgements go to the target and not to the requester; READ responses and the like go to the
// requester.
//
// Its run of PSNs starts where the target says. After a NAK it takes nothing until the next run begins.
class StandIn final : private delegate_detail::Parts, public RcQueuePair {
 public:
  // `config`: the QPN is the target's, the rest is of the process that owns the queue. Listener and counters
  // are ignored.
  StandIn(const QpConfig& config, StandInAnswers& answers);

  // Makes the stand-in ready for requests. REQUIRES: attributes() are the target's
  void begin();
  // The next request belongs to this run. REQUIRES: begin()
  void follow(uint32_t run, roce::Psn next, uint32_t msn);

  TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) override;
  bool has_urgent() const override;
  // Acknowledgements never wait for the application's next verb: the target sees to that.
  bool has_acknowledgement() const override { return false; }

 private:
  friend class delegate_detail::Splitter;

  void answer(uint8_t syndrome, roce::Psn psn, uint32_t msn, bool after_packets);
  bool owes_failure() const { return state() == IBV_QPS_ERR && !failure_told_; }

  StandInAnswers& answers_;
  uint32_t run_ = 0;
  bool failure_told_ = false;
};

}  // namespace verbena::transport
