// SPDX-License-Identifier: Apache-2.0
// The requester's other side: what comes back, and what happens when nothing does.
#include <algorithm>
#include <cassert>
#include <utility>

#include "adapter/transport/requester.h"
#include "adapter/transport/send_request.h"
#include "wire/roce/aeth.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;
using roce::Psn;

// rnr_retry 7 means without end (IBTA volume 1, 9.7.5.2.8).
constexpr uint8_t kInfiniteRnrRetry = 7;

// How much longer than asked for a timer runs that goes back once more: so many of kTimerParts, and up to
// kTimerSpread besides, differently for each queue pair and try. Many that have begun together would else go
// on to fill the same queue together, and the same ones would find it full each time.
constexpr uint32_t kTimerParts = 64;
constexpr uint32_t kTimerMore = 8;
constexpr uint32_t kTimerSpread = 10;

Duration lengthened(Duration timeout, roce::Qpn qpn, uint8_t retries_left) {
  const uint32_t draw = (qpn.value() * 0x9e3779b1u + retries_left * 0x85ebca6bu) >> 26;
  return timeout * (kTimerParts + kTimerMore + draw % kTimerSpread) / kTimerParts;
}

// How a request fails that the peer refuses. Nothing: the NAK says that a packet is missing.
std::optional<ibv_wc_status> status_of_refusal(uint8_t syndrome) {
  if (roce::aeth_kind(syndrome) != roce::AethKind::kNak) return std::nullopt;
  switch (static_cast<roce::NakCode>(roce::aeth_value(syndrome))) {
    case roce::NakCode::kInvalidRequest:
    case roce::NakCode::kInvalidRdRequest:
      return IBV_WC_REM_INV_REQ_ERR;
    case roce::NakCode::kRemoteAccess:
      return IBV_WC_REM_ACCESS_ERR;
    case roce::NakCode::kRemoteOperational:
      return IBV_WC_REM_OP_ERR;
    default:
      return std::nullopt;
  }
}

}  // namespace

// Takes everything before `limit` as received by the peer. Stops at a READ or atomic whose response has not
// come: false.
bool Requester::acknowledge_before(Psn limit) {
  if (!flow_) [[likely]]
    acknowledge_whole(limit);
  while (head_ != assigned_ && unacked_.is_before(limit)) {
    const SendWqe& wqe = ring().at(head_);
    if (needs_response(wqe)) return false;
    const bool whole = wqe.last_psn.is_before(limit);
    settle(wqe, whole ? wqe.last_psn + 1 : limit);
    if (whole) retire(IBV_WC_SUCCESS);
  }
  return true;
}

// The same for requests of which nothing was acknowledged before, and all is now, up to the first that is
// anything else.
void Requester::acknowledge_whole(Psn limit) {
  if (limit.is_after(next_)) limit = next_;
  const uint32_t first = head_;
  uint32_t bytes = 0;
  // Of many that the program has asked nothing about its ring hears at once.
  uint32_t silent = 0;
  uint32_t silent_sends = 0;
  const auto consume_silent = [&] {
    if (silent > 0) qp_.consume_in_silence(std::exchange(silent, 0), std::exchange(silent_sends, 0));
  };
  for (; head_ != assigned_ && unacked_.is_before(limit); ++head_) {
    const SendWqe& wqe = ring().at(head_);
    if (needs_response(wqe) || wqe.first_psn != unacked_ || !wqe.last_psn.is_before(limit)) break;
    const Psn past = wqe.last_psn + 1;
    bytes += wqe.length + static_cast<uint32_t>(past - unacked_) * sizes_.charge;
    unacked_ = past;
    if (qp_.ends_in_silence(wqe)) {
      ++silent;
      silent_sends += is_send(wqe) ? 1 : 0;
    } else {
      consume_silent();
      qp_.complete_send(wqe, IBV_WC_SUCCESS);
    }
  }
  consume_silent();
  if (head_ == first) return;
  inflight_ -= std::min(inflight_, bytes);
  lossless_window_.on_acknowledged(bytes);
  window_ = lossless_window_.usable();
  retire_executed();
}

// Moves unacked_ up to `limit`, within the request at head_ or to its end.
void Requester::settle(const SendWqe& wqe, Psn limit) {
  const Psn counted =
      limit.is_after(next_) ? next_ : limit;  // beyond next_: sent before a loss, not in flight any more
  if (flow_) {
    settle_flow(wqe, counted);
  } else {
    const uint32_t bytes = counted.is_after(unacked_) ? flight_bytes(wqe, unacked_, counted) : 0;
    inflight_ -= std::min(inflight_, bytes);
    lossless_window_.on_acknowledged(bytes);
    window_ = lossless_window_.usable();
  }
  unacked_ = limit;
}

// Completes the request at head_. REQUIRES: it is posted
void Requester::retire(ibv_wc_status status) {
  assert(head_ != ring().posted());
  const SendWqe& wqe = ring().at(head_);
  qp_.complete_send(wqe, status);
  ++head_;
  if (status == IBV_WC_SUCCESS) retire_executed();
}

// Requests without packets are complete as soon as all before them are.
void Requester::retire_executed() {
  while (head_ != assigned_ && ring().at(head_).executed) {
    qp_.complete_send(ring().at(head_), IBV_WC_SUCCESS);
    if (cursor_ == head_) ++cursor_;  // it was to be passed over after going back
    ++head_;
  }
}

// After unacked_ and head_ have moved: next_ and cursor_ catch up, if they are behind now.
void Requester::progressed(TimePoint now) {
  if (flow_) progressed_flow(now);
  if (!running_) [[unlikely]]
    return;
  if (next_.is_before(unacked_)) start_over();
  const QpAttributes& attributes = qp_.attributes();
  heard_ = true;
  retries_left_ = attributes.retry_count;
  rnr_retries_left_ = attributes.rnr_retry;
  rnr_deadline_ = kNever;
  is_patient_ = false;
  const bool waits = unacked_.is_before(highest_) && ack_timeout() != Duration::zero();
  ack_deadline_ = waits ? now + ack_timeout() : kNever;
  implied_loss_at_.reset();
  if (stopped_ && head_ == cursor_) return fail_head(*stopped_);
  if (refused_at_ && refused_at_->is_before(unacked_)) refused_at_.reset();
  if (fails_at_ && !unacked_.is_before(fails_at_->psn)) fail_in_turn();
  if (!running_) return;
  if (qp_.state() == IBV_QPS_SQD && head_ == assigned_) announce_drained();
}

void Requester::on_acknowledge(const Acknowledgement& answer, TimePoint now) {
  on_acknowledge(answer, true, now);
}

// An adapter would have answered: what the peer's process cannot help is no retry.
void Requester::on_stopped(Psn psn, TimePoint now) {
  on_acknowledge({psn, 0, roce::rnr_syndrome(roce::kStoppedTimer)}, false, now);
}

// `counts`: whether an RNR NAK uses up a retry.
void Requester::on_acknowledge(const Acknowledgement& answer, bool counts, TimePoint now) {
  const roce::AethKind kind = roce::aeth_kind(answer.syndrome);
  if (kind == roce::AethKind::kReserved) return;
  const Psn before = unacked_;
  const Psn limit = kind == roce::AethKind::kAck ? answer.psn + 1 : answer.psn;
  // Answers to what was never sent, or was answered long ago. A NAK may come for the PSN that is sent next,
  // if a stranger's packet was taken for one that came early: it acknowledges all before it.
  if (!running_ || limit.is_after(highest_) || answer.psn.is_before(unacked_)) return;
  const bool reached = acknowledge_before(limit);
  if (unacked_ != before) progressed(now);
  if (!running_) return;
  if (!reached && unacked_.is_before(limit)) {
    // A refusal comes once, behind the answers to what was asked before it: they have been overtaken. To ask
    // again would lose them, as the peer answers nothing more. Nobody can refuse what was not sent.
    const bool was_sent = answer.psn != highest_;
    const auto refusal = was_sent ? status_of_refusal(answer.syndrome) : std::nullopt;
    if (refusal) {
      note_nak(answer);
      qp_.count(kErrorNaksReceived);
      refused_at_ = answer.psn;
      note_failure({answer.psn, *refusal});
      probes_ = 0;
      if (flow_) await_probe(now);
    }
    if (flow_ && (refusal || !was_sent || kind == roce::AethKind::kAck)) return note_reached(limit, now);
    if (!refusal) on_implied_loss();
    return;
  }
  // Answers that came early may have gone past it.
  if (kind == roce::AethKind::kAck || answer.psn.is_before(unacked_) || answer.psn == highest_) return;
  if (kind == roce::AethKind::kRnrNak) return on_rnr(roce::aeth_value(answer.syndrome), counts, now);
  if (answer.syndrome == roce::kReadySyndrome && qp_.route().traits.lossless) return on_ready();
  note_nak(answer);
  if (const auto refusal = status_of_refusal(answer.syndrome)) {
    qp_.count(kErrorNaksReceived);
    fail_head(*refusal);
  } else if (static_cast<roce::NakCode>(roce::aeth_value(answer.syndrome)) == roce::NakCode::kSequenceError) {
    on_sequence_error();
  }
}

void Requester::on_sequence_error() {
  qp_.count(kSequenceNaksReceived);
  // One that tells what it has sends NAKs until it hears that it is understood: that was lost.
  heard_due_ = tells_arrivals_ && flow_ != nullptr;
  if (knows_of_gap()) return;
  // A peer that has to be sent everything again is better sent little at a time.
  if (flow_ && !tells_arrivals_) flow_->use(congestion::Kind::kFixed);
  if (!flow_) lends_ = false;  // nothing is lost there: it could not fetch what was lent
  lost();
  go_back();
}

void Requester::note_failure(const Failure& failure) {
  if (!fails_at_ || failure.psn.is_before(fails_at_->psn)) fails_at_ = failure;
}

// All requests before the one that fails are answered.
void Requester::fail_in_turn() {
  const Failure failure = *fails_at_;
  fails_at_.reset();
  if (failure.psn == unacked_) fail_head(failure.status);
}

// That a packet is missing is said as often as the network loses some; a refusal ends the QP.
void Requester::note_nak(const Acknowledgement& nak) {
  const trace::Recorder::Numbers numbers{nak.psn.value(), nak.syndrome};
  if (nak.syndrome == roce::nak_syndrome(roce::NakCode::kSequenceError)) {
    qp_.note_frequent(trace::Kind::kNakReceived, numbers);
  } else {
    qp_.note(trace::Kind::kNakReceived, numbers);
  }
}

void Requester::on_rnr(uint8_t timer_code, bool counts, TimePoint now) {
  // We wait already: the network has doubled the NAK.
  if (rnr_deadline_ != kNever) return;
  qp_.count(kRnrNaksReceived);
  qp_.note_frequent(trace::Kind::kNakReceived,
                    {unacked_.value(), roce::rnr_syndrome(timer_code), rnr_retries_left_});
  if (counts && rnr_retries_left_ == 0) {
    fail_head(IBV_WC_RNR_RETRY_EXC_ERR);
    return;
  }
  if (counts && qp_.attributes().rnr_retry != kInfiniteRnrRetry) --rnr_retries_left_;
  // A peer that says it is not ready is not silent.
  retries_left_ = qp_.attributes().retry_count;
  is_patient_ = false;
  probes_ = 0;
  go_back();
  ack_deadline_ = probe_deadline_ = kNever;
  rnr_deadline_ = now + roce::rnr_delay(timer_code);
}

// The peer had no receive request when the request came, and has one now. This is no RNR NAK, so it costs no
// retry, and nothing was lost.
void Requester::on_ready() {
  qp_.note_frequent(trace::Kind::kNakReceived, {unacked_.value(), roce::kReadySyndrome});
  retries_left_ = qp_.attributes().retry_count;
  is_patient_ = false;
  go_back();
}

// The READ or atomic request that a response with this PSN answers, if it is the response we wait for.
SendWqe* Requester::response_target(Psn psn, TimePoint now) {
  if (!running_ || !psn.is_before(highest_) || psn.is_before(unacked_)) return nullptr;
  // A response acknowledges all that came before it.
  const Psn before = unacked_;
  const bool reached = acknowledge_before(psn);
  if (unacked_ != before) progressed(now);
  if (!running_ || psn.is_before(unacked_)) return nullptr;
  if (!reached && flow_) return nullptr;  // on_early_answer() sees to it
  if (!reached || head_ == assigned_ || !needs_response(ring().at(head_))) {
    // One before it is missing. (Or it answers a SEND or WRITE: nonsense, which the timer will outlive.)
    if (!reached) on_implied_loss();
    return nullptr;
  }
  return &ring().at(head_);
}

// Whether it is a part of what the READ asked for.
bool Requester::is_answer_of(const SendWqe& wqe, const roce::Packet& packet) const {
  const Psn last = packet.headers.psn + (packet.count - 1);
  const uint32_t offset = offset_at(wqe, packet.headers.psn);
  if (last.is_after(wqe.last_psn)) return false;
  if (packet.payload.size() != std::min(packet.count * mtu(), wqe.length - offset)) return false;
  // A part of a READ that was asked for again by itself ends where it ends.
  const bool ends = packet.headers.info().ends_message;
  return ends == (part_of(wqe, last).limit == last + 1) || (ends && asked_for_parts_);
}

void Requester::on_read_response(const roce::Packet& packet, TimePoint now) {
  const Psn psn = packet.headers.psn;
  SendWqe* wqe = response_target(psn, now);
  if (wqe == nullptr && is_early(psn)) return on_early_answer(packet, now);
  if (wqe == nullptr && psn.is_before(unacked_)) return note_repeated(psn, now);
  if (wqe == nullptr || is_atomic(*wqe)) return;
  if (is_placement(*wqe)) {
    on_placement_response(*wqe, packet, now);
    return;
  }
  const uint32_t offset = offset_at(*wqe, psn);
  const Psn last = psn + (packet.count - 1);
  if (!is_answer_of(*wqe, packet)) {
    fail_head(IBV_WC_BAD_RESP_ERR);
    return;
  }
  if (scatter(qp_.keys(), qp_.config().pd, wqe->sges(), offset, packet.payload) != ScatterResult::kDone) {
    fail_head(IBV_WC_LOC_PROT_ERR);
    return;
  }
  const Psn limit = part_of(*wqe, last).limit;
  if (last.is_before(next_) && limit == last + 1 && reads_outstanding_ > 0) --reads_outstanding_;
  if (!scoreboard_.empty()) note_requests(limit, now);
  settle(*wqe, last + 1);
  if (last == wqe->last_psn) retire(IBV_WC_SUCCESS);
  progressed(now);
}

// Annex A19.4: a response without payload.
void Requester::on_placement_response(const SendWqe& wqe, const roce::Packet& packet, TimePoint now) {
  const roce::Psn psn = packet.headers.psn;
  if (packet.headers.operation() != roce::Operation::kReadResponseOnly || !packet.payload.empty()) {
    fail_head(IBV_WC_BAD_RESP_ERR);
    return;
  }
  if (psn.is_before(next_) && reads_outstanding_ > 0) --reads_outstanding_;
  settle(wqe, psn + 1);
  retire(IBV_WC_SUCCESS);
  progressed(now);
}

void Requester::on_atomic_acknowledge(const roce::Headers& headers, TimePoint now) {
  SendWqe* wqe = response_target(headers.psn, now);
  if (wqe == nullptr && is_early(headers.psn)) return on_early_answer({headers, {}}, now);
  if (wqe == nullptr || !is_atomic(*wqe)) return;
  const uint64_t original = headers.atomic_original;
  if (scatter(qp_.keys(), qp_.config().pd, wqe->sges(), 0, std::as_bytes(std::span(&original, 1))) !=
      ScatterResult::kDone) {
    fail_head(IBV_WC_LOC_PROT_ERR);
    return;
  }
  if (headers.psn.is_before(next_) && reads_outstanding_ > 0) --reads_outstanding_;
  settle(*wqe, headers.psn + 1);
  retire(IBV_WC_SUCCESS);
  progressed(now);
}

// A later answer came while a response is missing: it was lost. Believed once for each place, as answers to
// what was sent before going back keep arriving for a while.
void Requester::on_implied_loss() {
  if (implied_loss_at_ == unacked_) return;
  implied_loss_at_ = unacked_;
  qp_.count(kImpliedLosses);
  qp_.note_frequent(trace::Kind::kImpliedLoss, {unacked_.value()});
  lost();
  go_back();
}

void Requester::go_back() {
  if (next_ == unacked_) return;
  qp_.note_frequent(trace::Kind::kGoesBack, {unacked_.value(), next_.value()});
  start_over();
}

// Begins again with the oldest packet that is not acknowledged. The requester counts on nothing that is in
// flight, and finds out again what was wrong with the request at the cursor.
void Requester::start_over() {
  next_ = asked_ = unacked_;
  cursor_ = head_;
  if (flow_) flow_->starts_over(next_);
  scoreboard_.reset(next_);
  answers_.reset(next_);
  latest_reads_.clear();
  reads_not_named_ = 0;
  overdue_ = kNever;
  probe_due_ = false;
  inflight_ = reads_outstanding_ = since_ack_request_ = 0;
  asks_next_ = false;
  stopped_.reset();
}

void Requester::timed_out() {
  if (flow_) {
    flow_->timed_out();
    paced_until_ = kNever;
    obey_flow();
  } else {
    lossless_window_.on_timeout();
    window_ = lossless_window_.usable();
  }
}

// The peer must not be able to complete a request that nobody has posted, whatever it answers.
void Requester::fail_head(ibv_wc_status status) {
  if (head_ != ring().posted()) retire(status);
  qp_.fail();
}

// What was sent lies where the peer's process has not come to it, which gets no processor or is stopped. An
// adapter would have answered in its place, so this is no silence, however long it takes: of a process that
// has ended nothing lies anywhere.
bool Requester::peer_may_not_have_looked() {
  const PacketSink& sink = *qp_.route().sink;
  if (!std::exchange(is_patient_, true)) {
    put_ = sink.put_so_far();
    looks_late_ = false;
  }
  if (!sink.is_taken(put_)) return looks_late_ = true;
  // Who has come to it just now has the time to answer that all others have.
  if (std::exchange(looks_late_, false)) return true;
  put_ = sink.put_so_far();
  return false;
}

void Requester::on_timer(TimePoint now) {
  if (!running_) return;
  if (rnr_deadline_ <= now) rnr_deadline_ = kNever;
  if (paced_until_ <= now) paced_until_ = kNever;
  if (overdue_ <= now) find_lost(now);
  if (probe_deadline_ <= now) on_probe(now);
  if (ack_deadline_ > now) return;
  ack_deadline_ = kNever;
  // The program may have asked for another timeout while the send queue was drained.
  if (!has_outstanding() || ack_timeout() == Duration::zero()) return;
  if (peer_may_not_have_looked()) {
    ack_deadline_ = now + ack_timeout();
    return;
  }
  qp_.count(kLocalAckTimeouts);
  qp_.note(trace::Kind::kTimeout,
           {unacked_.value(), highest_.value(), retries_left_, static_cast<uint64_t>(ack_timeout().count())});
  if (retries_left_ == 0) {
    fail_head(IBV_WC_RETRY_EXC_ERR);
    return;
  }
  --retries_left_;
  timed_out();
  implied_loss_at_.reset();
  go_back();
  // The timer may run up to four times as long as asked (IBTA volume 1, 9.7.6.1.3), but programs reckon with
  // what they asked for, (retry_cnt + 1) times the timeout. So all tries together take at most a quarter
  // longer: a peer that is just not given a processor gains that much.
  ack_deadline_ = now + lengthened(ack_timeout(), qp_.config().qpn, retries_left_);
}

}  // namespace verbena::transport
