// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/forwarded_requests.h"

#include <utility>

#include "adapter/transport/inbound.h"
#include "adapter/transport/send_request.h"

namespace verbena::transport {
namespace {

using queues::SharedReceiveQueueTable;
using roce::NakCode;
using roce::Operation;
using roce::Psn;

// Max unanswered PSNs: far below half the PSN space, beyond which old and new PSNs look alike.
constexpr uint32_t kMaxPassed = 1u << 22;

// Time from the first repetition until the requester is asked to wait. A requester that repeats what it has
// just sent has not waited long. One that takes an RNR NAK for an error (rnr_retry 0) should use some of its
// retries first.
constexpr Duration kSilence = std::chrono::milliseconds(100);

}  // namespace

void ForwardedRequests::start() {
  count_ = run_ = 0;
  in_message_ = false;
  silent_since_ = kNever;
}

void ForwardedRequests::end() {
  in_message_ = false;
  if (run_ == 0) return;
  run_ = 0;
  qp_.config().owners->end(qp_);
}

ForwardedRequests::Passage ForwardedRequests::pass(const roce::Packet& packet, const Target& target) {
  const roce::Headers& headers = packet.headers;
  const uint32_t owner = SharedReceiveQueueTable::slot_of(headers.xrc_srq);
  const auto wait_or = [&](Result alone) -> Passage { return {any() ? Result::kHeldBack : alone}; };
  if (any() && owner != owner_) return wait_or(Result::kHeldBack);
  // All packets of a message name one queue. (The owner checks whether two queues of its own are the same.)
  const bool in_others_message = target.in_message || (in_message_ && owner != owner_);
  const bool is_read = headers.operation() == Operation::kReadRequest;
  const bool too_long = is_read && headers.dma_length > kMaxMessageBytes;
  if (in_others_message || too_long) return wait_or(Result::kInvalid);
  const uint32_t psns = is_read ? packets_for(headers.dma_length, qp_.attributes().path_mtu) : 1;
  if (any() && count_ + psns > kMaxPassed) return wait_or(Result::kHeldBack);
  QueueOwners& owners = *qp_.config().owners;
  if (!any()) {
    run_ = owners.new_run();
    owner_ = owner;
    ask_afterwards_ = false;
    asked_ = false;
  }
  if (!owners.pass({qp_, packet, run_, target.msn, false})) return wait_or(Result::kNotReady);
  count_ += psns;
  if (headers.ack_request) note_asked(target.expected + (psns - 1));
  if (Inbound::takes(headers.operation())) in_message_ = !headers.info().ends_message;
  return {Result::kPassed, psns};
}

void ForwardedRequests::pass_again(const roce::Packet& packet, uint32_t msn) {
  [[maybe_unused]] const bool passed = qp_.config().owners->pass({qp_, packet, run_, msn, true});
}

void ForwardedRequests::note_asked(Psn last) {
  if (!std::exchange(asked_, true)) asked_first_ = asked_last_ = last;
  if (last.is_before(asked_first_)) asked_first_ = last;
  if (last.is_after(asked_last_)) asked_last_ = last;
}

bool ForwardedRequests::asks_for_patience(TimePoint now) {
  if (silent_since_ == kNever) silent_since_ = now;
  return now - silent_since_ >= kSilence && now - silent_since_ < kLongestPatience;
}

// Acknowledges only as often as requested: READ responses acknowledge their PSNs.
bool ForwardedRequests::is_asked_for(Psn answered) {
  if (!asked_ || answered.is_before(asked_first_)) return false;
  asked_ = answered.is_before(asked_last_);
  asked_first_ = asked_last_;
  return true;
}

ForwardedRequests::Verdict ForwardedRequests::on_owner_answer(const OwnerAnswer& answer, Psn expected) {
  if (run_ == 0 || answer.run != run_ || answer.owner != owner_) return {};
  const int32_t place = answer.psn - (expected - count_);
  const auto pending = static_cast<int32_t>(count_);
  const roce::AethKind kind = roce::aeth_kind(answer.syndrome);
  if (kind == roce::AethKind::kAck) return on_acknowledgement(answer, place);
  if (kind == roce::AethKind::kReserved) return {};
  // An owner may also fail between two requests.
  const bool fails = kind == roce::AethKind::kNak;
  if (place < 0 || place > pending || (place == pending && !fails)) return {};
  Verdict verdict;
  if (place > 0) verdict.msn = answer.msn & 0xffffff;
  take_back();
  verdict.taken_back = static_cast<uint32_t>(pending - place);
  verdict.code = static_cast<NakCode>(roce::aeth_value(answer.syndrome));
  verdict.event = answer.event;
  verdict.next = !fails                                    ? Verdict::Next::kNotReady
                 : verdict.code == NakCode::kSequenceError ? Verdict::Next::kGoOn
                                                           : Verdict::Next::kRefuse;
  return verdict;
}

ForwardedRequests::Verdict ForwardedRequests::on_acknowledgement(const OwnerAnswer& answer, int32_t place) {
  if (place < 0 || place >= static_cast<int32_t>(count_)) return {};
  count_ -= static_cast<uint32_t>(place) + 1;
  silent_since_ = kNever;
  Verdict verdict;
  verdict.msn = answer.msn & 0xffffff;
  verdict.acknowledge = is_asked_for(answer.psn);
  // Nothing is unanswered any more: requests that waited may come.
  if (!any() && std::exchange(ask_afterwards_, false)) verdict.next = Verdict::Next::kGoOn;
  return verdict;
}

ForwardedRequests::Verdict ForwardedRequests::on_owner_gone(uint32_t owner, NakCode code) {
  if (run_ == 0 || owner != owner_ || (!any() && !in_message_)) return {};
  Verdict verdict;
  verdict.next = Verdict::Next::kRefuse;
  verdict.taken_back = take_back();
  verdict.code = code;
  verdict.event = code == NakCode::kInvalidRequest ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_FATAL;
  return verdict;
}

uint32_t ForwardedRequests::take_back() {
  ask_afterwards_ = false;
  silent_since_ = kNever;
  return std::exchange(count_, 0);
}

}  // namespace verbena::transport
