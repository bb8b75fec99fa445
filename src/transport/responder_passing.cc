// SPDX-License-Identifier: Apache-2.0
// Requests for shared receive queues of other processes (IBTA volume 1, annex A14, knows one adapter, whose
// queues these all are): passed on in their order, and acknowledged when their owner has answered for them.
//
// Only the requests of one owner are unanswered at a time: were a later one of another's executed already
// when an earlier one has to be repeated, it would be executed twice. What has to wait for that reason is
// dropped, and asked for again by a NAK as soon as everything before it is answered.
#include <utility>

#include "transport/queue_owners.h"
#include "transport/responder.h"
#include "transport/send_request.h"

namespace verbena::transport {
namespace {

using queues::SharedReceiveQueueTable;
using roce::NakCode;
using roce::Operation;
using roce::Psn;

// PSNs unanswered at a time: far from half of what there are, beyond which old and new are not told apart.
constexpr uint32_t kMostPassed = 1u << 22;

}  // namespace

void Responder::pass_on(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  const uint32_t owner = SharedReceiveQueueTable::slot_of(headers.xrc_srq);
  if (passed_ > 0 && owner != owner_) return hold_back();
  // All packets of a message name one queue. (Whether two queues of one owner are the same, the owner says.)
  const bool in_others_message = inbound_.in_message() || (message_elsewhere_ && owner != owner_);
  const bool is_read = headers.operation() == Operation::kReadRequest;
  const bool too_long = is_read && headers.dma_length > kMaxMessageBytes;
  if (in_others_message || too_long) return passed_ > 0 ? hold_back() : refuse(NakCode::kInvalidRequest);
  const uint32_t psns = is_read ? packets_for(headers.dma_length, mtu()) : 1;
  if (passed_ > 0 && passed_ + psns > kMostPassed) return hold_back();
  QueueOwners& owners = *qp_.config().owners;
  if (passed_ == 0) {
    run_ = owners.new_run();
    owner_ = owner;
    ask_after_passed_ = false;
    asked_ = false;
  }
  if (!owners.pass({qp_, packet, run_, msn_, false})) return passed_ > 0 ? hold_back() : not_ready();
  passed_ += psns;
  expected_ = expected_ + psns;
  if (headers.ack_request) note_asked();
  if (Inbound::takes(headers.operation())) message_elsewhere_ = !headers.info().ends_message;
}

void Responder::note_asked() {
  asked_last_ = expected_ - 1;
  if (!std::exchange(asked_, true)) asked_first_ = asked_last_;
}

// Not more often than asked for: the PSNs of READs are acknowledged by their responses.
void Responder::acknowledge_passed(Psn answered) {
  if (!asked_ || answered.is_before(asked_first_)) return;
  acknowledgement_due_ = true;
  asked_ = answered.is_before(asked_last_);
  asked_first_ = asked_last_;
}

// As if it had been lost; but its sender will be told soon.
void Responder::hold_back() {
  ask_after_passed_ = true;
}

void Responder::on_owner_answer(const OwnerAnswer& answer) {
  if (!running_ || run_ == 0 || answer.run != run_ || answer.owner != owner_) return;
  const int32_t place = answer.psn - (expected_ - passed_);
  const auto pending = static_cast<int32_t>(passed_);
  const roce::AethKind kind = roce::aeth_kind(answer.syndrome);
  if (kind == roce::AethKind::kAck) {
    if (place < 0 || place >= pending) return;
    passed_ -= static_cast<uint32_t>(place) + 1;
    msn_ = answer.msn & 0xffffff;
    acknowledge_passed(answer.psn);
    if (passed_ == 0 && ask_after_passed_) ask_again();
    return;
  }
  if (kind == roce::AethKind::kReserved) return;
  // An owner may fail between two requests, too.
  const bool fails = kind == roce::AethKind::kNak;
  if (place < 0 || place > pending || (place == pending && !fails)) return;
  if (place > 0) msn_ = answer.msn & 0xffffff;
  take_back(static_cast<uint32_t>(pending - place));
  if (!fails) return not_ready();
  const auto code = static_cast<NakCode>(roce::aeth_value(answer.syndrome));
  if (code == NakCode::kSequenceError) return ask_again();
  refuse_passed(code, answer.event);
}

void Responder::on_owner_gone(uint32_t owner, NakCode code) {
  if (!running_ || run_ == 0 || owner != owner_ || (passed_ == 0 && !message_elsewhere_)) return;
  take_back(passed_);
  refuse_passed(code, code == NakCode::kInvalidRequest ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_FATAL);
}

void Responder::refuse_passed(NakCode code, std::optional<ibv_event_type> event) {
  qp_.count(kErrorNaksSent);
  give_up({roce::nak_syndrome(code), expected_}, event);
}

// The last so many of those passed on are expected again.
void Responder::take_back(uint32_t psns) {
  expected_ = expected_ - psns;
  passed_ = 0;
  ask_after_passed_ = false;
}

// Nothing is unanswered any more: what was dropped meanwhile may come.
void Responder::ask_again() {
  ask_after_passed_ = false;
  gap_reported_ = true;
  nak_ = Nak{roce::nak_syndrome(NakCode::kSequenceError), expected_};
  qp_.count(kSequenceNaksSent);
}

// A READ or an atomic is answered again by the process that answered it first.
void Responder::repeat_elsewhere(const roce::Packet& packet) {
  [[maybe_unused]] const bool passed = qp_.config().owners->pass({qp_, packet, run_, msn_, true});
}

void Responder::synchronize(roce::Psn expected, uint32_t msn) {
  expected_ = expected;
  msn_ = msn & 0xffffff;
  gap_reported_ = false;
  acknowledgement_due_ = false;
  nak_.reset();
}

// The requests are nobody's any more, and it is too late for answers.
void Responder::end_passing() {
  take_back(passed_);
  message_elsewhere_ = false;
  if (run_ == 0) return;
  run_ = 0;
  qp_.config().owners->end(qp_);
}

}  // namespace verbena::transport
