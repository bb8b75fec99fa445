// SPDX-License-Identifier: Apache-2.0
// Where packets may be lost: what is missing is sent again, and nothing else, if the peer keeps what came
// after it (control_packets.h). One that does not is sent everything again from the gap on, as ever.
#include <algorithm>
#include <bit>

#include "adapter/transport/congestion_notices.h"
#include "adapter/transport/control_packets.h"
#include "adapter/transport/reorder_buffer.h"
#include "adapter/transport/requester.h"
#include "adapter/transport/send_request.h"
#include "base/probes.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;
using roce::Psn;

// A network that is known to be so unruly is waited for as long as a round trip.
constexpr uint8_t kMaxDisorder = 8;
constexpr int64_t kPartsOfDisorder = 4;
constexpr uint8_t kLossesToForget = 16;
constexpr uint8_t kMaxProbes = 6;
// So many READs are named again after a loss.
constexpr uint32_t kReadsToName = 1024;
// What is sent again within such a part of a round trip is looked at together.
constexpr int64_t kPartsOfRoundTrip = 16;
// A repair that is not answered so soon may be on its way still.
constexpr Duration kLeastTimeout = std::chrono::microseconds(200);

}  // namespace

SendWqe& Requester::owner_of(Psn psn) {
  uint32_t low = 0;
  uint32_t high = assigned_ - head_ - 1;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (ring().at(head_ + middle).last_psn.is_before(psn)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return ring().at(head_ + low);
}

// ---- what has arrived

void Requester::on_arrivals(const roce::Packet& packet, TimePoint now) {
  const Sack arrivals = Sack::read(packet.payload);
  if (!running_ || !flow_) return;
  // It comes from one who expects a packet of ours, or expected one that was sent a little before.
  const Psn theirs = packet.headers.psn + Sack::kPast;
  if (theirs.is_after(highest_) || unacked_ - theirs >= static_cast<int32_t>(ReorderBuffer::kMaxAhead))
    return;
  tells_arrivals_ = true;
  // One of ours also tells of marked packets, so they may be marked.
  CongestionNotices::allow_marks(qp_.attributes().path);
  flow_->use(qp_.config().congestion);
  on_incast(arrivals.incast);
  if (heard_sent_ < Sack::kMaxUnheard) heard_due_ = true;
  // While everything is sent again it is all under way.
  if (!has_outstanding() || next_.is_before(highest_)) return;
  bool is_news = false;
  const auto arrived = [&](Psn from, Psn limit, LossScoreboard::State state) {
    note_time(from, limit, state);
    take_arrived(from, limit, state == LossScoreboard::State::kLost);
    is_news = true;
  };
  // False: the rest is not to be looked at, as nobody has sent it, or there are more holes than are
  // remembered.
  const auto fill = [&](Psn first, Psn limit) {
    if (first.is_before(unacked_)) first = unacked_;
    if (!first.is_before(limit)) return true;
    return !limit.is_after(highest_) &&
           scoreboard_.fill(first, limit, now, arrived,
                            [&](const LossScoreboard::Hole& h) { note_closed(h, now); });
  };
  // The acknowledgement of what is before the expected one may come later. One that continues another says
  // nothing if that was lost.
  bool goes_on =
      arrivals.continues ? !arrivals.expected.is_after(scoreboard_.top()) : fill(unacked_, arrivals.expected);
  for (uint32_t i = 0; goes_on && i < arrivals.count; ++i) {
    const Sack::Range& range = arrivals.ranges[i];
    goes_on = fill(range.first, range.first + range.count);
  }
  if (is_news) {
    flow_->answered(inflight_, now);
    obey_flow();
    // The peer is there, and takes what it is sent.
    retries_left_ = qp_.attributes().retry_count;
    if (ack_deadline_ != kNever) ack_deadline_ = now + ack_timeout();
    probes_ = 0;
    await_probe(now);
  }
  find_lost(now);
}

void Requester::on_incast(const congestion::Incast& incast) {
  if (!running_ || !flow_) return;
  flow_->told(incast);
  obey_flow();
}

// How long packets take, and how many arrive, is seen by those that were sent once: an answer to others may
// be to either time.
void Requester::note_time(Psn first, Psn limit, LossScoreboard::State state) {
  if (state == LossScoreboard::State::kUnderWay) flow_->took_time(first, limit);
}

// Answers that may have waited for a request that was lost tell nothing.
void Requester::note_answer_time(Psn first, Psn limit, LossScoreboard::State state) {
  if (!first.is_before(held_up_)) note_time(first, limit, state);
}

// What has arrived is not in flight any more; what had been taken for lost was not, either.
void Requester::left_flight(uint32_t bytes, bool was_lost) {
  flow_->arrived(bytes);
  if (!was_lost) inflight_ -= std::min(inflight_, bytes);
}

// Of what is answered by more than an acknowledgement the request is there: its answer is still to come.
void Requester::take_arrived(Psn from, Psn limit, bool was_lost) {
  for_each_owner(from, limit, [&](const SendWqe& wqe, Psn begin, Psn end) {
    const uint32_t bytes = flight_bytes(wqe, begin, end);
    if (needs_response(wqe)) {
      if (was_lost) inflight_ += bytes;
      return;
    }
    left_flight(bytes, was_lost);
  });
}

// [unacked_, limit) of the request is done with.
void Requester::settle_flow(const SendWqe& wqe, Psn limit) {
  if (!unacked_.is_before(limit)) return;
  const LossScoreboard& holes = needs_response(wqe) ? answers_ : scoreboard_;
  holes.for_each_part(unacked_, limit, [&](Psn from, Psn to, LossScoreboard::State state) {
    if (state == LossScoreboard::State::kArrived) return;
    if (needs_response(wqe)) {
      note_answer_time(from, to, state);
    } else {
      note_time(from, to, state);
    }
    left_flight(flight_bytes(wqe, from, to), state == LossScoreboard::State::kLost);
  });
}

void Requester::progressed_flow(TimePoint now) {
  take_early();
  for (LossScoreboard* holes : {&scoreboard_, &answers_}) {
    for (const LossScoreboard::Hole& hole : holes->all()) {
      if (!hole.first.is_before(unacked_)) break;
      note_closed(hole, now);
    }
    holes->advance(unacked_, now);
  }
  if (held_up_.is_before(unacked_)) held_up_ = unacked_;
  latest_reads_.drop_before(unacked_);
  pins_.release_before(unacked_);
  if (!has_outstanding()) inflight_ = 0;
  flow_->answered(inflight_, now);
  flow_->settled(unacked_);
  obey_flow();
  find_lost(now);
  probes_ = 0;
  probe_deadline_ = kNever;
  if (has_outstanding()) await_probe(now);
}

// What closes sooner than its repair could was not lost, only late: such networks are given more time.
void Requester::note_closed(const LossScoreboard::Hole& hole, TimePoint now) {
  const congestion::RttEstimator& round_trip = flow_->round_trip();
  if (hole.lost || !hole.again || hole.begun || !round_trip.is_known()) return;
  // What was sent again before this, and is not here, has been overtaken.
  if (now - hole.since >= round_trip.usual() / 2) repaired_at_ = std::max(repaired_at_, hole.since);
  if (now - hole.since < (hole.asked ? round_trip.least() : round_trip.smoothed()) / 2) {
    return note_disorder(now);
  }
  // An overflow is many at once, and says no more about the order than one.
  if (disorder_ == 0 || now < loss_counts_at_) return;
  loss_counts_at_ = now + round_trip.smoothed();
  if (++losses_ < kLossesToForget) return;
  --disorder_;
  losses_ = 0;
}

// What was late together, in such a part of a round trip, was so for one reason.
void Requester::note_disorder(TimePoint now) {
  if (now < disorder_counts_at_) return;
  disorder_counts_at_ = now + flow_->round_trip().smoothed() / kPartsOfDisorder;
  disorder_ = std::min<uint8_t>(disorder_ + 1, kMaxDisorder);
  losses_ = 0;
}

// What was asked for again has come twice: it had only been late, however long it took.
void Requester::note_repeated(Psn psn, TimePoint now) {
  const bool was_asked = !psn.is_before(asked_again_.first) && psn.is_before(asked_again_.limit);
  if (flow_ && asked_for_parts_ && was_asked) note_disorder(now);
}

// ---- what is missing

// How long a packet may be missing that others have overtaken (as in RFC 8985, 6.2).
Duration Requester::patience() const {
  const congestion::RttEstimator& round_trip = flow_->round_trip();
  // A peer that does not tell is asked for much at once, which had better not be in vain.
  const uint8_t disorder = tells_arrivals_ ? disorder_ : std::max<uint8_t>(disorder_, 2);
  return std::min(round_trip.usual() / 4 * (1 << disorder), round_trip.timeout());
}

// How long an answer to a repair may take.
Duration Requester::answer_time() const {
  const congestion::RttEstimator& round_trip = flow_->round_trip();
  const Duration least = round_trip.is_known() ? kLeastTimeout : qp_.config().least_ack_timeout;
  return std::max(round_trip.timeout(), least);
}

// How long it is waited for: longer from time to time in silence, which says nothing of the path.
Duration Requester::repair_timeout() const {
  return answer_time() * (1 << std::min(probes_, kMaxProbes));
}

// Answers how many bytes the path has lost by that: of a READ's request it is one packet.
uint64_t Requester::give_up_hole(const LossScoreboard& holes, LossScoreboard::Hole& hole) {
  hole.lost = true;
  const auto packets = static_cast<uint64_t>(hole.limit - hole.first);
  qp_.count_on_path(kPathLostPackets, packets);
  qp_.note_frequent(trace::Kind::kLost, {hole.first.value(), packets});
  uint64_t bytes = 0;
  uint64_t lost = 0;
  for_each_owner(hole.first, hole.limit, [&](const SendWqe& wqe, Psn from, Psn to) {
    const uint32_t part = flight_bytes(wqe, from, to);
    bytes += part;
    lost += &holes == &scoreboard_ && is_read(wqe) ? std::min(part, full_packet()) : part;
  });
  inflight_ -= static_cast<uint32_t>(std::min<uint64_t>(inflight_, bytes));
  reads_to_name_ = kReadsToName;
  return lost;
}

// A hole is a loss when it is too old. One that was filled again is so when something that was sent later has
// arrived, or everything should have.
void Requester::find_lost(TimePoint now) {
  overdue_ = kNever;
  if (scoreboard_.empty() && answers_.empty()) return;
  const uint64_t answers = give_up_overdue(answers_, now);
  const uint64_t bytes = answers + give_up_overdue(scoreboard_, now);
  if (answers > 0) qp_.count(kImpliedLosses);
  if (bytes == 0) return;
  flow_->lost(bytes);
  obey_flow();
}

uint64_t Requester::give_up_overdue(LossScoreboard& holes, TimePoint now) {
  const Duration wait = patience();
  uint64_t bytes = 0;
  for (LossScoreboard::Hole& hole : holes.all()) {
    if (hole.lost) continue;
    TimePoint due = hole.since + wait;
    const bool was_overtaken = &holes == &scoreboard_ && std::max(flow_->latest_sent(), repaired_at_) > due;
    if (hole.again && !was_overtaken) due = std::max(due + repair_timeout(), hole.answer_due);
    if (due > now) {
      overdue_ = std::min(overdue_, due);
      continue;
    }
    const bool is_silence = hole.again && probes_ > 0;
    const uint64_t lost = give_up_hole(holes, hole);
    if (!is_silence) bytes += lost;
  }
  return bytes;
}

// ---- what is sent again

bool Requester::can_repair() const {
  if (!running_ || rnr_deadline_ != kNever) return false;
  if (heard_due_ || probe_due_) return true;
  return flow_ && paced_until_ == kNever && holes_to_repair() != nullptr;
}

// Those whose first lost packet may be sent now. What is missing first may always be, as what is in flight
// may wait for it: answers to requests that came behind a missing one.
const LossScoreboard* Requester::holes_to_repair() const {
  const bool allowed = window_allows(full_packet());
  for (const LossScoreboard* holes : {&scoreboard_, &answers_}) {
    const bool in_order = holes == &answers_ && !tells_arrivals_;
    if (holes->first_lost() != nullptr && ((allowed && !in_order) || holes->all().front().lost)) return holes;
  }
  return nullptr;
}

TransmitResult Requester::repair(TimePoint now, uint32_t& budget) {
  while (can_repair()) {
    if (budget == 0) return TransmitResult::kMore;
    SendStatus status = SendStatus::kSent;
    if (heard_due_) {
      status = send_heard();
    } else if (probe_due_) {
      status = send_probe(now);
    } else if (!flow_->may_send(now)) {
      paced_until_ = flow_->may_send_at();
      return TransmitResult::kPaced;
    } else {
      status = repair_one(holes_to_repair() == &scoreboard_ ? scoreboard_ : answers_, now);
    }
    if (status == SendStatus::kBusy) return TransmitResult::kBusy;
    if (status == SendStatus::kFault) go_back();  // the request fails when its turn comes
    --budget;
    if (has_outstanding()) await_acknowledgement(now);
  }
  return TransmitResult::kIdle;
}

SendStatus Requester::repair_one(LossScoreboard& holes, TimePoint now) {
  const LossScoreboard::Hole& hole = *holes.first_lost();
  const Psn first = hole.first;
  const SendWqe& wqe = owner_of(first);
  Psn limit = first + 1;
  SendStatus status = SendStatus::kSent;
  if (is_data(wqe)) {
    status = put_data_again(wqe, first, hole.limit == limit || probes_ > 0);
  } else if (is_read(wqe)) {
    limit = part_of(wqe, first).limit;
    // Linux rxe forgets what of a READ lies before what it was asked for last. So a peer that may be one is
    // asked for all from the first gap on, and for nothing behind that meanwhile.
    const bool asks_for_all = &holes == &answers_ && !tells_arrivals_;
    if (!asks_for_all && hole.limit.is_before(limit)) limit = hole.limit;
    status = put_read(wqe, first, limit);
    asked_for_parts_ = true;
    asked_again_ = {first, limit};
  } else {
    status = is_atomic(wqe) ? put_atomic(wqe) : put_placement(wqe);
  }
  if (status != SendStatus::kSent) return status;
  flow_->repaired(flight_bytes(wqe, first, limit), now);
  const TimePoint overtaken_by = now + patience();
  const LossScoreboard::Repair sent{.at = now,
                                    .answer_due = overtaken_by + answer_time(),
                                    .together = flow_->round_trip().smoothed() / kPartsOfRoundTrip,
                                    .asked = needs_response(wqe)};
  holes.sent_again(limit, sent, [&](Psn from, Psn to) { inflight_ += flight_bytes(wqe, from, to); });
  // Answers to what was sent since then wait until it is there, and tell no round trip.
  if (&holes == &scoreboard_) held_up_ = next_;
  count_sent_again(first);
  // Should it be lost, too, somebody has to notice.
  overdue_ = std::min(overdue_, overtaken_by + repair_timeout());
  return status;
}

SendStatus Requester::put_data_again(const SendWqe& wqe, Psn psn, bool ack_request) {
  DataPacket packet;
  const auto index = static_cast<uint32_t>(psn - wqe.first_psn);
  if (!make_data_packet(qp_, service_, wqe, index, psn, 1, packet)) return SendStatus::kFault;
  packet.headers.ack_request = ack_request;
  const SendStatus status =
      qp_.send_out({qp_.attributes().path, packet.headers, packet.pieces.get(), packet.bytes});
  if (status == SendStatus::kSent) qp_.count(kSentBytes, packet.bytes);
  return status;
}

void Requester::count_sent_again(Psn first) {
  VERBENA_PROBE(retransmission, qp_.config().qpn.value(), first.value(), 1);
  qp_.count(kSentPackets);
  qp_.count(kRetransmittedPackets);
}

// The last packet once more, to hear what has become of it and of those before it.
SendStatus Requester::send_probe(TimePoint now) {
  const Psn last = next_ - 1;
  if (!has_outstanding() || next_.is_before(highest_) || last.is_before(unacked_) ||
      first_lost() != nullptr) {
    probe_due_ = false;
    return SendStatus::kSent;
  }
  const SendWqe& wqe = owner_of(last);
  if (needs_response(wqe)) return ask_for_last_answer(wqe);
  const SendStatus status = put_data_again(wqe, last, true);
  if (status != SendStatus::kSent) return status;
  probe_due_ = false;
  note_question(true, 0);
  flow_->repaired(flight_bytes(wqe, last, next_), now);
  count_sent_again(last);
  return status;
}

// The same for one that is answered by more than an acknowledgement.
SendStatus Requester::ask_for_last_answer(const SendWqe& wqe) {
  SendStatus status = SendStatus::kSent;
  if (is_read(wqe)) {
    const Psn begin = part_of(wqe, next_ - 1).first;
    status = put_read(wqe, begin.is_before(unacked_) ? unacked_ : begin, next_);
  } else {
    status = is_atomic(wqe) ? put_atomic(wqe) : put_placement(wqe);
  }
  if (status != SendStatus::kSent) return status;
  probe_due_ = false;
  count_sent_again(next_ - 1);
  return status;
}

SendStatus Requester::send_heard() {
  const SendStatus status = qp_.send_word(roce::kSackConfirmationOpcode, unacked_ - Sack::kPast);
  if (status != SendStatus::kSent) return status;
  heard_due_ = false;
  ++heard_sent_;
  return status;
}

// One of [next_, limit).
void Requester::note_read(const SendWqe& wqe, Psn limit) {
  if (!tells_arrivals_ || reads_to_name_ == 0 || service_ != roce::Service::kRc) return;
  --reads_to_name_;
  ++reads_not_named_;
  latest_reads_.add(read_of(wqe, next_, limit));
}

// Once more. (Where the route is full they are not: nothing depends on it.)
void Requester::name_reads(uint32_t& budget) {
  if (budget == 0) return;
  reads_not_named_ = 0;
  if (latest_reads_.count == 0) return;  // they have been answered
  --budget;
  std::array<std::byte, RepeatedReads::kMaxBytes> space;
  const uint32_t bytes = latest_reads_.write(space);
  qp_.send_word(roce::kRepeatedReadsOpcode, unacked_ - Sack::kPast, {space.data(), bytes});
}

// ---- silence

// The program's timeout says when a request fails. What is tried before is our own affair: answers that are
// overdue are asked for. Threads share processors, so it takes some milliseconds at least. Where no round
// trip is known, that timeout alone says when they are, if the peer answers at all. REQUIRES: flow_
void Requester::await_probe(TimePoint now) {
  const congestion::RttEstimator& round_trip = flow_->round_trip();
  if (!round_trip.is_known() && !fails_at_) return;
  const Duration least = qp_.config().least_ack_timeout / 4;
  const Duration wait = std::max({2 * round_trip.smoothed(), round_trip.timeout(), least});
  probe_deadline_ = now + wait * (1 << std::min(probes_, kMaxProbes));
}

void Requester::on_probe(TimePoint now) {
  probe_deadline_ = kNever;
  if (!has_outstanding() || rnr_deadline_ != kNever) return;
  if (refused_at_) {
    // After a while the answers to what came before are known to be lost.
    if (probes_++ == kMaxProbes) return fail_head(IBV_WC_RETRY_EXC_ERR);
    return await_probe(now);
  }
  if (next_.is_before(highest_)) {
    // Packets that are sent again ask by themselves, until none of them may be sent: behind a request that
    // cannot be sent, or behind READs that were lost once more and have no timeout.
    const bool has_no_timer = ack_timeout() == Duration::zero();
    const bool stands_still = has_no_timer && paced_until_ == kNever && !can_send_new();
    if (!stopped_ && !stands_still) return;
    go_back();
    probes_ = std::min<uint8_t>(probes_ + 1, kMaxProbes);
    return await_probe(now);
  }
  note_requests(answers_.top(), now);
  if (probes_++ == 0) {
    qp_.note_frequent(trace::Kind::kProbe, {(next_ - 1).value()});
    probe_due_ = true;
  } else if (!tells_arrivals_) {
    return;  // the acknowledgement timer goes back
  } else if (scoreboard_.extend(next_, now)) {
    // Not even that was answered: all that is not known to be there is not.
    for (LossScoreboard* holes : {&scoreboard_, &answers_}) {
      for (LossScoreboard::Hole& hole : holes->all()) {
        if (!hole.lost) give_up_hole(*holes, hole);
      }
    }
    timed_out();
    // All requests are there: it is the answers that do not get through.
    if (first_lost() == nullptr) probe_due_ = true;
  }
  probes_ = std::min(probes_, kMaxProbes);
  await_probe(now);
}

}  // namespace verbena::transport
