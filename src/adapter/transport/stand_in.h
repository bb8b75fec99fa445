// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "adapter/transport/queue_owners.h"
#include "adapter/transport/rc.h"

namespace verbena::transport {

class StandIn;

// Takes what delegates have to say to the targets they stand in for.
class DelegateAnswers {
 public:
  virtual ~DelegateAnswers() = default;
  // `after_packets`: it covers responses that have just been given to the wire; they should be the first to
  // arrive. (The receiver fills in answer.owner: it knows which peer speaks.)
  virtual void answer(const StandIn& delegate, const OwnerAnswer& answer, bool after_packets) = 0;
};

namespace delegate_detail {

// Stands before a delegate's route: responses go on to the requester, acknowledgements to the target.
class Splitter final : public PacketSink, public Routes {
 public:
  Splitter(StandIn& delegate, Routes* routes) : delegate_(delegate), routes_(routes) {}

  const Route& find(const roce::Path& path, roce::Qpn destination) override;
  SendStatus send(const OutgoingPacket& packet) override;
  // To be called when everything was sent that could be. A response is an acknowledgement, too: of what was
  // not acknowledged besides.
  void finish();

 private:
  StandIn& delegate_;
  Routes* const routes_;
  PacketSink* wire_ = no_route().sink;
  Route route_;
  bool responded_ = false;
  roce::Psn psn_;
  uint32_t msn_ = 0;
};

// What a delegate's QueuePair needs at its making.
struct Parts : QpEventListener {
  Parts(StandIn& delegate, Routes* routes) : splitter(delegate, routes) {}

  void on_qp_event(ibv_event_type event) override {
    if (event == IBV_EVENT_QP_ACCESS_ERR || event == IBV_EVENT_QP_REQ_ERR || event == IBV_EVENT_QP_FATAL)
      failure = event;
  }
  Splitter splitter;
  QpCounters own_counters{};  // of nobody's interest: the target counts
  std::optional<ibv_event_type> failure;
};

}  // namespace delegate_detail

// Stands in for an XRC target of another process where the shared receive queue is: carries out the requests
// that the target has found in sequence and passed on. It is such a target itself, but one whose
// acknowledgements go to the target and not to the requester; READ responses and the like do.
//
// Its run of PSNs begins where the target says. After a NAK nothing is taken until the next run begins.
class StandIn final : private delegate_detail::Parts, public RcQueuePair {
 public:
  // `config`: the target's QPN, and of the queue's process the rest. Listener and counters are not looked at.
  StandIn(const QpConfig& config, DelegateAnswers& answers);

  // Ready for requests. REQUIRES: attributes() are the target's
  void begin();
  // The next request is of this run. REQUIRES: begin()
  void follow(uint32_t run, roce::Psn next, uint32_t msn);

  TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) override;
  bool has_urgent() const override;
  // Nobody's next verb is waited for: the target does that.
  bool has_acknowledgement() const override { return false; }

 private:
  friend class delegate_detail::Splitter;

  void answer(uint8_t syndrome, roce::Psn psn, uint32_t msn, bool after_packets);
  bool owes_failure() const { return state() == IBV_QPS_ERR && !failure_told_; }

  DelegateAnswers& answers_;
  uint32_t run_ = 0;
  bool failure_told_ = false;
};

}  // namespace verbena::transport
