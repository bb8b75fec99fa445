// SPDX-License-Identifier: Apache-2.0
// Answers to READs and atomics that come before their turn, where packets may be lost. Their data is put
// where it belongs at once: nobody may look at it before the request completes, and requests complete in
// order. Only what is missing is asked for again, as a READ may ask for a part of what it asked for before
// (IBTA volume 1, 9.7.5.1.3).
#include <algorithm>
#include <span>

#include "adapter/transport/requester.h"
#include "adapter/transport/send_request.h"

namespace verbena::transport {

using queues::SendWqe;
using roce::Psn;

void Requester::on_early_answer(const roce::Packet& packet, TimePoint now) {
  const Psn psn = packet.headers.psn;
  if ((psn + packet.count).is_after(next_)) return;
  const SendWqe& wqe = owner_of(psn);
  if (!needs_response(wqe)) return;
  note_reached(psn, now);
  if (!scoreboard_.empty()) note_requests(part_of(wqe, psn).limit, now);
  if (psn.is_before(answers_.top())) {
    bool is_missing = false;
    answers_.for_each_part(psn, psn + 1, [&](Psn, Psn, LossScoreboard::State state) {
      is_missing = state != LossScoreboard::State::kArrived;
    });
    if (!is_missing) return note_repeated(psn, now);
  }
  // A packet that does not answer the request is found again in its turn, and fails the request then.
  const ibv_wc_status taken = take_answer(wqe, packet);
  if (taken == IBV_WC_LOC_PROT_ERR) note_failure({psn, taken});
  if (taken != IBV_WC_SUCCESS) return;
  answers_.fill(
      psn, psn + packet.count, now,
      [&](Psn from, Psn limit, LossScoreboard::State state) {
        note_answer_time(from, limit, state);
        answered_early(from, limit, state == LossScoreboard::State::kLost);
      },
      [&](const LossScoreboard::Hole& hole) { note_closed(hole, now); });
  flow_->answered(inflight_, now);
  obey_flow();
  retries_left_ = qp_.attributes().retry_count;
  if (ack_deadline_ != kNever) ack_deadline_ = now + ack_timeout();
  probes_ = 0;
  await_probe(now);
  find_lost(now);
}

// Its data to its place. Answers the status that the request would complete with for this.
ibv_wc_status Requester::take_answer(const SendWqe& wqe, const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  const auto place = [&](uint32_t offset, ConstBytes data) {
    const auto placed = scatter(qp_.keys(), qp_.config().pd, wqe.sges(), offset, data);
    return placed == ScatterResult::kDone ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
  };
  const bool is_atomic_answer = headers.operation() == roce::Operation::kAtomicAcknowledge;
  if (is_atomic(wqe) != is_atomic_answer) return IBV_WC_BAD_RESP_ERR;
  if (is_atomic_answer) {
    const uint64_t original = headers.atomic_original;
    return place(0, std::as_bytes(std::span(&original, 1)));
  }
  if (is_placement(wqe)) {
    const bool is_empty = headers.operation() == roce::Operation::kReadResponseOnly && packet.payload.empty();
    return is_empty ? IBV_WC_SUCCESS : IBV_WC_BAD_RESP_ERR;
  }
  if (!is_answer_of(wqe, packet)) return IBV_WC_BAD_RESP_ERR;
  return place(offset_at(wqe, headers.psn), packet.payload);
}

// The peer has done everything before `limit`: what of it has not been answered is missing.
void Requester::note_reached(Psn limit, TimePoint now) {
  note_requests(limit, now);
  Psn from = answers_.top();
  if (from.is_before(unacked_)) from = unacked_;
  if (limit.is_after(next_)) limit = next_;
  const auto nothing = [](auto&&...) {};
  for_each_owner(from, limit, [&](const SendWqe& wqe, Psn begin, Psn end) {
    if (needs_response(wqe)) {
      answers_.extend(end, now);
    } else {
      answers_.fill(begin, end, now, nothing, nothing);
    }
  });
  find_lost(now);
}

// The peer has all requests before `limit`: who is answered has been heard.
void Requester::note_requests(Psn limit, TimePoint now) {
  if (limit.is_after(next_)) limit = next_;
  if (!unacked_.is_before(limit)) return;
  scoreboard_.fill(
      unacked_, limit, now,
      [&](Psn from, Psn to, LossScoreboard::State state) {
        take_arrived(from, to, state == LossScoreboard::State::kLost);
      },
      [&](const LossScoreboard::Hole& hole) { note_closed(hole, now); });
}

void Requester::answered_early(Psn from, Psn limit, bool was_lost) {
  for_each_owner(from, limit, [&](const SendWqe& wqe, Psn begin, Psn end) {
    if (!needs_response(wqe)) return;
    left_flight(flight_bytes(wqe, begin, end), was_lost);
  });
}

// What had come early, up to the next that is missing.
void Requester::take_early() {
  while (running_ && head_ != assigned_ && unacked_.is_before(answers_.top())) {
    Psn limit = answers_.top();
    for (const LossScoreboard::Hole& hole : answers_.all()) {
      if (!hole.limit.is_after(unacked_)) continue;
      limit = hole.first;
      break;
    }
    if (!unacked_.is_before(limit)) return;
    const SendWqe& wqe = ring().at(head_);
    const Psn past = wqe.last_psn + 1;
    if (past.is_before(limit)) limit = past;
    for (Psn psn = unacked_; needs_response(wqe) && psn != limit; ++psn) {
      const bool ends = part_of(wqe, psn).limit == psn + 1;
      if (ends && psn.is_before(next_) && reads_outstanding_ > 0) --reads_outstanding_;
    }
    settle(wqe, limit);
    if (limit == past) retire(IBV_WC_SUCCESS);
  }
}

}  // namespace verbena::transport
