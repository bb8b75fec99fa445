// SPDX-License-Identifier: Apache-2.0
// Early packets of a responder. They are kept until the missing ones have come and owners of queues have
// answered everything before. Then they are executed in order, and one acknowledgement covers all of them
// (IBTA volume 1, 9.7.5.1.2).
#include <algorithm>

#include "adapter/transport/responder.h"
#include "adapter/transport/sack.h"
#include "adapter/transport/send_request.h"

namespace verbena::transport {

using roce::Operation;
using roce::Psn;

// A READ owns the PSNs of its response. A READ that is too long is refused in its turn.
uint32_t Responder::psns_of(const roce::Packet& packet) const {
  if (packet.headers.operation() != Operation::kReadRequest) return packet.count;
  return packets_for(std::min(packet.headers.dma_length, kMaxMessageBytes), mtu());
}

// A rendezvous payload cannot be kept: it may be gone when its turn comes. (Such a packet is early only if
// the route to the peer has changed to one that loses packets since it was put into a ring.)
void Responder::on_early(const roce::Packet& packet, uint32_t ahead, const LentPayload* lent) {
  const bool is_gap = !kept_.has(expected_);  // else the expected packet is here, and waits
  const bool gap_is_new = !kept_.has_after(expected_);
  if (is_gap && gap_is_new && !gap_reported_) {
    qp_.note_frequent(trace::Kind::kOutOfSequence, {packet.headers.psn.value(), expected_.value()});
  }
  if (keeps() && lent == nullptr && ahead < ReorderBuffer::kMaxAhead) {
    if (!kept_.add(packet, psns_of(packet), expected_)) qp_.count(kDuplicateRequests);
    const bool is_occasion = !kept_.empty() && (gap_is_new || packet.headers.ack_request);
    if (is_occasion && may_tell(gap_is_new)) arrivals_due_ = true;
  }
  // A peer that understands SACKs needs no NAK to see what is missing. But if nothing could be kept, there is
  // no SACK.
  if ((is_heard_ && !kept_.empty()) || (!is_gap && wait_ == Wait::kForReceive)) return;
  if (!gap_reported_) {
    if (passed_.any()) return passed_.hold_back();  // a NAK would acknowledge them
    ask_for_expected();
  }
  // From a NAK on, the peer of a responder that keeps nothing sends everything again. Like Linux rxe, such a
  // responder sends no second NAK.
  const bool will_come_again = !keeps() && !nak_;
  const bool is_furthest = !dropped_ || packet.headers.psn.is_after(*dropped_);
  if (kept_.empty() && is_furthest && !will_come_again) dropped_ = packet.headers.psn;
}

// The expected packet came before the NAK for it was sent. Without a NAK for what follows, the peer would not
// learn that a packet behind it was dropped.
void Responder::ask_for_dropped() {
  if (!running_ || nak_) return;
  if (dropped_->is_before(expected_)) {
    dropped_.reset();
  } else {
    ask_for_expected();
  }
}

bool Responder::may_tell(bool gap_is_new) {
  if (is_heard_ || unheard_ < Sack::kMaxUnheard) return true;
  return gap_is_new && ++unheard_gaps_ % Sack::kGapsUnheard == 0;
}

// Whether a control packet's PSN is where the peer was then, or a little before: only the peer can know that.
bool Responder::knows_where_we_are(Psn word) const {
  const int32_t behind = expected_ - (word + Sack::kPast);
  return behind >= 0 && behind < static_cast<int32_t>(ReorderBuffer::kMaxAhead);
}

void Responder::on_heard(Psn psn) {
  if (knows_where_we_are(psn)) is_heard_ = true;
}

void Responder::on_repeated_reads(const roce::Packet& word, TimePoint now) {
  if (!keeps() || !knows_where_we_are(word.headers.psn)) return;
  const RepeatedReads reads = RepeatedReads::read(word.payload);
  for (const RepeatedReads::Request& request : reads.all()) {
    const int32_t ahead = request.psn - expected_;
    if (!running_ || ahead < 0 || ahead >= static_cast<int32_t>(ReorderBuffer::kMaxAhead)) continue;
    if (kept_.has(request.psn)) continue;
    roce::Headers headers;
    headers.opcode = roce::make_opcode(service_, Operation::kReadRequest);
    headers.destination = word.headers.destination;
    headers.psn = request.psn;
    headers.address = request.address;
    headers.rkey = request.rkey;
    headers.dma_length = request.bytes;
    by_word_.add(request.psn, request.bytes);
    on_request({headers, {}}, now);
  }
}

void Responder::execute_kept() {
  bool waits = false;
  while (running_ && kept_.has(expected_)) {
    const Psn psn = expected_;
    const roce::Headers headers = kept_.at(psn).headers;  // an error drops the packet
    execute(kept_.at(psn));
    if (nak_) note_refusal({headers, {}});
    waits = expected_ == psn && (passed_.any() || is_not_ready());  // for answers, or for a receive request
    if (waits) break;
    if (kept_.has(psn)) kept_.erase(psn);  // an error drops them all
    if (expected_ == psn) break;           // refused: it will come again
  }
  if (!waits && !kept_.has_after(expected_)) kept_.clear();
  if (kept_.empty()) return passed_.settle();
  // A packet waits, or there is another gap behind the one that was closed.
  if (is_heard_) arrivals_due_ = true;
}

// Sends as many SACK packets as needed, up to a limit: the rest is reported when the gaps before it are
// closed.
SendStatus Responder::send_arrivals() {
  Sack arrivals;
  arrivals.expected = expected_;
  if (qp_.config().incast != nullptr) arrivals.incast = qp_.config().incast->get();
  const uint32_t most = Sack::max_at(mtu());
  uint32_t packets = 0;
  SendStatus status = SendStatus::kSent;
  const auto send = [&] {
    status = send_arrivals(arrivals);
    return status == SendStatus::kSent && ++packets < Sack::kMaxPackets;
  };
  kept_.for_each_range(expected_, [&](Psn first, uint32_t count) {
    if (first == arrivals.expected) {  // only waits for its turn
      arrivals.expected = first + count;
      return true;
    }
    arrivals.ranges[arrivals.count++] = {first, count};
    if (arrivals.count < most) return true;
    const bool goes_on = send();
    arrivals.expected = first + count;
    arrivals.continues = true;
    arrivals.count = 0;
    return goes_on;
  });
  if ((arrivals.count > 0 || packets == 0) && packets < Sack::kMaxPackets && status == SendStatus::kSent) {
    send();
  }
  if (status != SendStatus::kSent) return status;
  arrivals_due_ = false;
  if (!is_heard_ && unheard_ < Sack::kMaxUnheard) ++unheard_;
  return status;
}

SendStatus Responder::send_arrivals(const Sack& arrivals) {
  std::array<std::byte, Sack::kMaxBytes> space;
  const uint32_t bytes = arrivals.write(space);
  show_progress();
  return qp_.send_word(roce::kSackOpcode, expected_ - Sack::kPast, {space.data(), bytes});
}

}  // namespace verbena::transport
