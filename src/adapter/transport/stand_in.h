// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "adapter/transport/forwarded_requests.h"
#include "adapter/transport/rc.h"

namespace verbena::transport {

class StandIn;

// Passes the results of stand-ins on to the processes of their XRC targets. A stand-in (StandIn, below)
// executes requests for a target in another process, and that process sends the ACK or NAK.
class StandInAnswers {
 public:
  virtual ~StandInAnswers() = default;
  // Passes on `answer`. `after_packets`: responses that the answer covers have just been given to the route,
  // and should reach the requester before the target acknowledges, so flush them first. answer.owner is not
  // set. The target's process sets it, as it knows which process has answered.
  virtual void answer(const StandIn& stand_in, const OwnerAnswer& answer, bool after_packets) = 0;
};

namespace delegate_detail {

// Takes the packets that a StandIn (below) sends. Passes responses on to the route to the requester. Turns
// ACKs and NAKs into StandIn::answer(), for the XRC target.
class Splitter final : public PacketSink, public Routes {
 public:
  Splitter(StandIn& stand_in, Routes* routes) : stand_in_(stand_in), routes_(routes) {}

  // Finds only routes that are known already. The program has not named the requester, and a request may name
  // any process, so this must not set up a channel.
  const Route& find(const roce::Path& path, roce::Qpn destination) override;
  SendStatus send(const OutgoingPacket& packet) override;
  // Call when nothing more can be sent now. If the last packet was a response, reports to the target that
  // this response acknowledges the requests up to its PSN. Does nothing after an ACK or NAK, as the target
  // got that already.
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
  QpCounters own_counters{};              // unused: the target counts
  std::optional<ibv_event_type> failure;  // for the target to raise
};

}  // namespace delegate_detail

// Stands in for an XRC target of another process, in the process that owns the shared receive queue. Executes
// the requests that the target found in sequence and forwarded. A stand-in is itself an XRC target QP, but
// its acknowledgements and NAKs go to the target. Its responses to READs, atomics and the like go to the
// requester.
//
// The target numbers runs: sequences of forwarded requests without a gap (ForwardedRequest::run). After a
// NAK, the stand-in executes nothing until the next run begins.
class StandIn final : private delegate_detail::Parts, public RcQueuePair {
 public:
  // The QPN in `config` is the target's; the rest describes the process that owns the queue. Listener and
  // counters are ignored.
  StandIn(const QpConfig& config, StandInAnswers& answers);

  // Makes the stand-in ready for requests. REQUIRES: attributes() are the target's
  void begin() {
    enter(IBV_QPS_INIT);
    enter(IBV_QPS_RTR);
  }
  // Call before each request that is not a repetition, with the run of the request. A new run starts with PSN
  // `next`, and with `msn` as the MSN before it. REQUIRES: begin() was called
  void follow(uint32_t run, roce::Psn next, uint32_t msn);

  TransmitResult transmit(TimePoint now, uint32_t budget, bool with_acknowledgements) override;
  bool has_urgent() const override {
    return RcQueuePair::has_urgent() || RcQueuePair::has_acknowledgement() || owes_failure();
  }
  // Returns false, since acknowledgements never wait for the application's next verb: has_urgent() includes
  // them.
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
