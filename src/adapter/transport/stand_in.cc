// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/stand_in.h"

#include <utility>

#include "wire/roce/aeth.h"

namespace verbena::transport {

using roce::AethKind;
using roce::NakCode;
using roce::Operation;

namespace {

QpConfig with_parts(QpConfig config, delegate_detail::Parts& parts) {
  config.listener = &parts;
  config.counters = &parts.own_counters;
  config.more_counters = nullptr;
  config.routes = &parts.splitter;
  config.owners = nullptr;  // nothing is forwarded twice
  config.repairs = false;   // the target has put packets in order
  return config;
}

}  // namespace

namespace delegate_detail {

const Route& Splitter::find(const roce::Path& path, roce::Qpn destination) {
  route_ = routes_ != nullptr ? routes_->find_known(path, destination) : no_route();
  wire_ = std::exchange(route_.sink, this);
  route_.traits.lossless = false;  // the target learns at once of a request that finds no receive request
  return route_;
}

SendStatus Splitter::send(const OutgoingPacket& packet) {
  const roce::Headers& headers = packet.headers;
  if (headers.operation() == Operation::kAcknowledge) {
    stand_in_.answer(headers.syndrome, headers.psn, headers.msn, std::exchange(responded_, false));
    return SendStatus::kSent;
  }
  const SendStatus status = wire_->send(packet);
  // A repeated response may come after later ones, and acknowledges less.
  if (status == SendStatus::kSent && !(responded_ && headers.psn.is_before(psn_))) {
    responded_ = true;
    psn_ = headers.psn;
    msn_ = headers.msn;
  }
  return status;
}

void Splitter::finish() {
  if (std::exchange(responded_, false)) stand_in_.answer(roce::ack_syndrome(), psn_, msn_, true);
}

}  // namespace delegate_detail

StandIn::StandIn(const QpConfig& config, StandInAnswers& answers)
    : Parts(*this, config.routes),
      RcQueuePair(with_parts(config, *this), queues::SendQueue(), queues::RecvQueue(), Role::kXrcTarget),
      answers_(answers) {}

void StandIn::follow(uint32_t run, roce::Psn next, uint32_t msn) {
  if (run == run_) return;
  run_ = run;
  synchronize(next, msn);
}

TransmitResult StandIn::transmit(TimePoint now, uint32_t budget, bool) {
  const TransmitResult result = RcQueuePair::transmit(now, budget, true);
  splitter.finish();
  // It failed for a reason that the requester is not told (a completion queue in error): the target must
  // know.
  if (result == TransmitResult::kIdle && owes_failure()) {
    answer(roce::nak_syndrome(NakCode::kRemoteOperational), next_receive_psn(), 0, false);
  }
  return result;
}

void StandIn::answer(uint8_t syndrome, roce::Psn psn, uint32_t msn, bool after_packets) {
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
