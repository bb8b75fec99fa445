// SPDX-License-Identifier: Apache-2.0
#include "transport/delegate.h"

#include "roce/aeth.h"

namespace verbena::transport {

using roce::AethKind;
using roce::NakCode;
using roce::Operation;

namespace {

QpConfig with_parts(QpConfig config, QpEventListener& listener, QpCounters& counters) {
  config.listener = &listener;
  config.counters = &counters;
  config.owners = nullptr;  // nothing is passed on twice
  return config;
}

}  // namespace

// Sends responses to the requester, and acknowledgements to the target.
class Delegate::Splitter final : public PacketSink {
 public:
  Splitter(Delegate& delegate, PacketSink& wire) : delegate_(delegate), wire_(wire) {}

  SendStatus send(const OutgoingPacket& packet) override {
    const roce::Headers& headers = packet.headers;
    if (headers.operation() == Operation::kAcknowledge) {
      delegate_.answer(headers.syndrome, headers.psn, headers.msn, responded_);
      responded_ = false;
      return SendStatus::kSent;
    }
    const SendStatus status = wire_.send(packet);
    if (status == SendStatus::kSent) {
      responded_ = true;
      psn_ = headers.psn;
      msn_ = headers.msn;
    }
    return status;
  }

  // A response is an acknowledgement, too: of what was not acknowledged besides.
  void finish() {
    if (responded_) delegate_.answer(roce::ack_syndrome(), psn_, msn_, true);
  }

 private:
  Delegate& delegate_;
  PacketSink& wire_;
  bool responded_ = false;
  roce::Psn psn_;
  uint32_t msn_ = 0;
};

Delegate::Delegate(const QpConfig& config, DelegateAnswers& answers)
    : RcQueuePair(with_parts(config, *this, own_counters), queues::SendQueue(), queues::RecvQueue(),
                  Role::kXrcTarget),
      answers_(answers) {}

void Delegate::begin() {
  enter(IBV_QPS_INIT);
  enter(IBV_QPS_RTR);
}

void Delegate::follow(uint32_t run, roce::Psn next, uint32_t msn) {
  if (run == run_) return;
  run_ = run;
  synchronize(next, msn);
}

bool Delegate::has_urgent() const {
  return RcQueuePair::has_urgent() || RcQueuePair::has_acknowledgement() || owes_failure();
}

TransmitResult Delegate::transmit(PacketSink& sink, TimePoint now, uint32_t budget, bool) {
  Splitter splitter(*this, sink);
  const TransmitResult result = RcQueuePair::transmit(splitter, now, budget, true);
  splitter.finish();
  // It failed for a reason that the requester would hear nothing of (a completion queue in error): the target
  // must know.
  if (result == TransmitResult::kIdle && owes_failure()) {
    answer(roce::nak_syndrome(NakCode::kRemoteOperational), next_receive_psn(), 0, false);
  }
  return result;
}

void Delegate::answer(uint8_t syndrome, roce::Psn psn, uint32_t msn, bool after_packets) {
  OwnerAnswer answer;
  answer.run = run_;
  answer.syndrome = syndrome;
  answer.psn = psn;
  answer.msn = msn;
  if (state() == IBV_QPS_ERR && roce::aeth_kind(syndrome) == AethKind::kNak) {
    failure_told_ = true;
    answer.event = failure;
  }
  answers_.answer(*this, answer, after_packets);
}

}  // namespace verbena::transport
