// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/responder.h"

#include <algorithm>

#include "adapter/memory/guarded.h"
#include "adapter/memory/ordered_copy.h"
#include "adapter/transport/error_words.h"
#include "adapter/transport/send_request.h"
#include "base/log.h"
#include "control/protocol/status_page.h"
#include "wire/roce/prefix.h"

namespace verbena::transport {

using roce::Psn;

void ResponderResources::start(uint32_t most) {
  saved_.assign(std::max(most, 1u), Resource{});
  ring_.assign(2 * saved_.size(), Reply{});
  next_saved_ = first_ = count_ = repeated_ = 0;
}

bool ResponderResources::add(const Resource& resource) {
  if (!queue(resource, false)) return false;
  saved_[next_saved_] = resource;
  next_saved_ = next_saved_ + 1 == saved_.size() ? 0 : next_saved_ + 1;
  return true;
}

const ResponderResources::Resource* ResponderResources::saved(Psn psn, Kind kind) const {
  const auto count = static_cast<uint32_t>(saved_.size());
  for (uint32_t age = 1; age <= count; ++age) {
    const Resource& r = saved_[(next_saved_ + count - age) % count];
    if (r.valid && r.kind == kind && !psn.is_before(r.first) && !psn.is_after(r.last)) return &r;
  }
  return nullptr;
}

void ResponderResources::repeat(const Resource& answer) {
  for (uint32_t place = 0; place < count_; ++place) {
    Reply& queued = at(place);
    if (queued.resource.last.is_before(answer.first) || answer.last.is_before(queued.resource.first)) {
      continue;
    }
    // This response is being sent. The part still to be sent need not be sent twice; the part already sent
    // starts again. A repetition of only a part is sent in addition, as the rest is wanted, too.
    if (queued.next.is_before(answer.first)) return;
    if (answer.last.is_before(queued.resource.last)) {
      if (queued.next == answer.first) return;
      continue;
    }
    queued.resource = answer;
    queued.next = answer.first;
    return;
  }
  queue(answer, true);
}

bool ResponderResources::queue(const Resource& resource, bool repeated) {
  if ((repeated ? repeated_ : count_ - repeated_) >= saved_.size()) return false;
  if (repeated) ++repeated_;
  uint32_t place = count_++;
  for (; place > 0 && at(place - 1).resource.first.is_after(resource.first); --place) {
    at(place) = at(place - 1);
  }
  at(place) = Reply{resource, resource.first, resource.first, repeated};
  return true;
}

namespace {

using roce::NakCode;
using roce::Operation;

// How long an RNR NAK is held back. A program that posts a receive request for each message may be late:
// requests may arrive as soon as they are sent, and its thread may wait for a processor. This is enough for a
// thread that was just woken, on a machine with several others per processor. (With 10 ms, fio's SENDs, which
// have no RNR retries, failed in one run of eight beside compilers.)
constexpr Duration kReceivePatience = std::chrono::milliseconds(100);
// At most this part of the QP's own ACK timeout; the peer's is most likely the same.
constexpr int kPatiencePart = 4;
// When a shared receive queue is looked at: first after kFirstLook, then after 1/kLookPart of the time that
// has passed.
constexpr Duration kFirstLook = std::chrono::microseconds(50);
constexpr int kLookPart = 4;

// Kind of the response to a request; nullopt: an acknowledgement.
std::optional<ResponderResources::Kind> answer_to(Operation operation) {
  switch (operation) {
    case Operation::kReadRequest:
      return ResponderResources::Kind::kRead;
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return ResponderResources::Kind::kAtomic;
    case Operation::kAtomicWrite:
    case Operation::kFlush:
      return ResponderResources::Kind::kEmpty;
    default:
      return std::nullopt;
  }
}

}  // namespace

void Responder::start() {
  const QpAttributes& attributes = qp_.attributes();
  running_ = true;
  expected_ = attributes.receive_psn;
  msn_ = 0;
  gap_reported_ = false;
  inbound_.abandon();
  acknowledgement_due_ = false;
  nak_.reset();
  end_wait();
  dropped_.reset();
  kept_.clear();
  refusal_.clear();  // it was for the former peer
  arrivals_due_ = is_heard_ = false;
  unheard_ = unheard_gaps_ = 0;
  by_word_.clear();
  replies_.start(attributes.max_dest_rd_atomic);
  passed_.start();
}

void Responder::halt(ibv_qp_state to) {
  running_ = false;
  nak_.reset();
  end_wait();
  kept_.clear();
  arrivals_due_ = false;
  expected_ = expected_ - passed_.take_back();
  passed_.end();
  if (refusing_) return;
  // An acknowledgement must not overtake responses that will not be sent.
  if (to == IBV_QPS_RESET || !replies_.empty()) acknowledgement_due_ = false;
  replies_.stop();
}

// ---- requests

void Responder::on_request(const roce::Packet& packet, TimePoint now, LentPayload* lent) {
  if (!running_) return;
  const int32_t ahead = packet.headers.psn - expected_;
  if (ahead > 0) {
    qp_.count(kOutOfSequence);
    on_early(packet, static_cast<uint32_t>(ahead), lent);
  } else if (ahead < 0) {
    qp_.count(kDuplicateRequests);
    qp_.note_frequent(trace::Kind::kDuplicate,
                      {packet.headers.psn.value(), expected_.value(), packet.headers.opcode});
    if (ahead < -static_cast<int32_t>(passed_.count())) {
      repeat(packet);
    } else {
      on_unanswered(packet, now);
    }
  } else {
    settle_absence();
    if (kept_.has(expected_)) [[unlikely]] {
      kept_.add(packet, psns_of(packet), expected_);
    } else {
      execute(packet, lent);
    }
    if (nak_) [[unlikely]] {
      note_refusal(packet);
      if (is_not_ready() && may_keep(packet, lent)) kept_.add(packet, psns_of(packet), expected_);
    } else if (!kept_.empty()) {
      execute_kept();
    }
    if (nak_) wait_for_receive(now);
    if (dropped_) [[unlikely]]
      ask_for_dropped();
  }
}

// The expected packet has come: withdraws the NAK for its absence. The NAK may have been the answer to a
// packet that requests one, so an acknowledgement takes its place.
void Responder::settle_absence() {
  gap_reported_ = false;
  if (!nak_) return;
  nak_.reset();
  acknowledgement_due_ = true;
}

void Responder::end_plain_send(const PlainSend& message) {
  gap_reported_ = false;
  message_ended();
  expected_ = expected_ + message.count;
  if (message.headers.ack_request) acknowledgement_due_ = true;
  inbound_.complete_whole(static_cast<uint32_t>(message.payload.size()), message.headers.solicited);
}

void Responder::on_messages(const roce::Packet& packet, std::span<const uint8_t> lengths, TimePoint now) {
  size_t taken = 0;
  if (running_ && packet.headers.psn == expected_ && kept_.empty()) {
    settle_absence();
    taken = inbound_.take_messages(packet.payload, lengths);
    expected_ = expected_ + static_cast<uint32_t>(taken);
    msn_ = (msn_ + static_cast<uint32_t>(taken)) & 0xffffff;
    if (taken == lengths.size()) {
      if (packet.headers.ack_request) acknowledgement_due_ = true;
      if (dropped_) [[unlikely]]
        ask_for_dropped();
      return;
    }
  }
  size_t offset = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (i >= taken) {
      on_request({headers_of_message(packet.headers, lengths, i), packet.payload.subspan(offset, lengths[i])},
                 now);
    }
    offset += lengths[i];
  }
}

void Responder::execute(const roce::Packet& packet, LentPayload* lent) {
  const Operation operation = packet.headers.operation();
  if (service_ == roce::Service::kXrc) {
    // In XRC each packet names the queue that its receive requests and keys come from (IBTA volume 1, annex
    // A14). A queue that does not exist, or is of another domain, makes the request invalid.
    const uint32_t number = packet.headers.xrc_srq;
    if (qp_.is_elsewhere(number)) return pass_on(packet);
    if (passed_.any()) return hold_back(packet);
    if (passed_.in_message() || !qp_.select_receives(number, inbound_.in_message()))
      return refuse(NakCode::kInvalidRequest);
  }
  if (Inbound::takes(operation)) return receive(packet, lent);
  if (operation == Operation::kReadRequest) return execute_read(packet);
  if (operation == Operation::kCompareSwap || operation == Operation::kFetchAdd)
    return execute_atomic(packet);
  if (operation == Operation::kAtomicWrite) return execute_atomic_write(packet);
  if (operation == Operation::kFlush) return execute_flush(packet);
  refuse(NakCode::kInvalidRequest);
}

void Responder::receive(const roce::Packet& packet, LentPayload* lent) {
  const Reception reception = inbound_.execute(packet, lent);
  switch (reception.result) {
    case Reception::Result::kEnded:
      message_ended();
      [[fallthrough]];
    case Reception::Result::kTaken:
      expected_ = expected_ + packet.count;
      if (packet.headers.ack_request) acknowledgement_due_ = true;
      return;
    case Reception::Result::kNotReady:
      return not_ready();
    case Reception::Result::kNotFetched:
      return ask_for_expected();
    case Reception::Result::kKeyStays:
      // An error of class J (IBTA volume 1, 9.9.6.3): the QP ends without a NAK, as the message has been
      // received. Like Linux rxe we acknowledge it, and the receive request fails. Without the
      // acknowledgement the sender would use up its retries and blame the network.
      inbound_.fail_receive(IBV_WC_REM_INV_REQ_ERR);
      message_ended();
      expected_ = expected_ + packet.count;
      if (packet.headers.ack_request) acknowledgement_due_ = true;
      return stop(std::nullopt);
    case Reception::Result::kRefused:
      return refuse(reception.code, reception.receive_status);
  }
}

void Responder::execute_read(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  if (inbound_.in_message() || !takes_reads() || !qp_.may(IBV_ACCESS_REMOTE_READ) ||
      headers.dma_length > kMaxMessageBytes) {
    return refuse(NakCode::kInvalidRequest);
  }
  if (headers.dma_length > 0 && remote_memory(qp_.keys(), qp_.remote_user(), headers.rkey, headers.address,
                                              headers.dma_length, IBV_ACCESS_REMOTE_READ) == nullptr) {
    return refuse(NakCode::kRemoteAccess);
  }
  const uint32_t packets = packets_for(headers.dma_length, mtu());
  message_ended();
  ResponderResources::Resource resource;
  resource.valid = true;
  resource.first = expected_;
  resource.last = expected_ + (packets - 1);
  resource.address = headers.address;
  resource.rkey = headers.rkey;
  resource.length = headers.dma_length;
  resource.msn = msn_;
  resource.user = qp_.remote_user();
  // More READs at once than max_dest_rd_atomic (IBTA volume 1, 9.7.4.1.8).
  if (!replies_.add(resource)) return refuse(NakCode::kInvalidRequest);
  expected_ = expected_ + packets;  // the response acknowledges
}

void Responder::execute_atomic(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  if (inbound_.in_message() || !takes_reads() || !qp_.may(IBV_ACCESS_REMOTE_ATOMIC) ||
      (headers.address & 7) != 0 || !replies_.has_room()) {
    return refuse(NakCode::kInvalidRequest);
  }
  std::byte* at = remote_memory(qp_.keys(), qp_.remote_user(), headers.rkey, headers.address,
                                sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
  if (at == nullptr) return refuse(NakCode::kRemoteAccess);
  // A region may start at any address, whatever addresses its peers use: the processor needs alignment here
  // too.
  if ((reinterpret_cast<uintptr_t>(at) & 7) != 0) return refuse(NakCode::kInvalidRequest);
  const std::optional<uint64_t> original =
      headers.operation() == Operation::kCompareSwap
          ? memory::compare_swap_guarded(at, headers.compare, headers.swap_add)
          : memory::fetch_add_guarded(at, headers.swap_add);
  if (!original) return refuse(NakCode::kRemoteAccess);
  message_ended();
  ResponderResources::Resource resource;
  resource.valid = true;
  resource.kind = ResponderResources::Kind::kAtomic;
  resource.first = resource.last = expected_;
  resource.msn = msn_;
  resource.original = *original;
  replies_.add(resource);
  ++expected_;
}

// Handles a duplicate (IBTA volume 1, 9.7.5.1.2 and .3): acknowledges SEND and WRITE again, and answers READ
// and atomics from the saved resource. Drops requests that are no longer saved.
void Responder::repeat(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  const Operation operation = headers.operation();
  const bool read = operation == Operation::kReadRequest;
  const std::optional<ResponderResources::Kind> kind = answer_to(operation);
  if (!kind) {
    acknowledgement_due_ = true;
    return;
  }
  if (service_ == roce::Service::kXrc && qp_.is_elsewhere(headers.xrc_srq))
    return passed_.pass_again(packet, msn_);
  if (read && by_word_.take(headers.psn, headers.dma_length)) return;
  const ResponderResources::Resource* resource = replies_.saved(headers.psn, *kind);
  if (resource == nullptr) return;
  ResponderResources::Resource answer = *resource;
  if (read) {
    // A repeated READ may ask for the rest only, from any packet on.
    const uint64_t skipped = uint64_t{static_cast<uint32_t>(headers.psn - resource->first)} * mtu();
    const bool within = skipped <= resource->length && headers.dma_length <= resource->length - skipped &&
                        headers.rkey == resource->rkey && headers.address == resource->address + skipped;
    if (!within) return;
    answer.first = headers.psn;
    answer.last = headers.psn + (packets_for(headers.dma_length, mtu()) - 1);
    answer.address = headers.address;
    answer.length = headers.dma_length;
    // Shows a peer that understands SACKs that it may ask for any part of a response.
    if (keeps() && !is_heard_ && unheard_ < Sack::kMaxUnheard) arrivals_due_ = true;
  }
  replies_.repeat(answer);
}

// ---- refusals

// A SEND that another request interrupts also fails, as in Linux rxe.
void Responder::refuse(NakCode code, ibv_wc_status receive_status) {
  qp_.count(kErrorNaksSent);
  if (receive_status == IBV_WC_SUCCESS && code == NakCode::kInvalidRequest && inbound_.fills_receive())
    receive_status = IBV_WC_REM_INV_REQ_ERR;
  if (receive_status != IBV_WC_SUCCESS) {
    inbound_.fail_receive(receive_status);
    return give_up({roce::nak_syndrome(code), expected_}, std::nullopt);
  }
  const bool access = code == NakCode::kRemoteAccess;
  give_up({roce::nak_syndrome(code), expected_}, access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
}

// Enters ERR; responses before the refusal are still sent, and then the refusal.
void Responder::give_up(const Nak& nak, std::optional<ibv_event_type> event) {
  stop(event);
  nak_ = nak;
}

uint64_t Responder::progress() const {
  return protocol::encode({.expected = (answered() + 1).value(),
                           .msn = msn_,
                           .rnr_retry = qp_.attributes().rnr_retry,
                           .is_exact = true});
}

// Enters ERR; responses to executed requests are still sent.
void Responder::stop(std::optional<ibv_event_type> event) {
  refusing_ = true;
  qp_.fail(event);
  refusing_ = false;
}

// Explains the refusal in the log, and to a peer process of our own user that is reached over shared memory.
void Responder::note_refusal(const roce::Packet& packet) try {
  const auto code = static_cast<NakCode>(roce::aeth_value(nak_->syndrome));
  if (roce::aeth_kind(nak_->syndrome) != roce::AethKind::kNak || code == NakCode::kSequenceError) return;
  const roce::Headers& headers = packet.headers;
  qp_.note(trace::Kind::kRefused, {headers.opcode | static_cast<uint64_t>(code) << 8, headers.psn.value(),
                                   headers.address, headers.rkey | uint64_t{headers.dma_length} << 32});
  const DirectAccess* const direct = qp_.route().direct;
  const bool is_told = direct != nullptr && direct->is_of_our_user();
  if (!is_told && log_level() < LogLevel::kError) return;
  refusal_ = why_refused(qp_, packet, code, inbound_.misfit());
  log_error("QP {:#08x}: {} of QP {:#08x} at {} is refused: {}", qp_.config().qpn.value(),
            packet.headers.info().name, qp_.attributes().destination.value(),
            roce::text_of(qp_.attributes().path.destination), refusal_);
  if (!is_told) refusal_.clear();
} catch (const std::bad_alloc&) {
  refusal_.clear();  // the NAK suffices
}

// Sent before the NAK. Peers that do not know the opcode drop it.
SendStatus Responder::send_refusal() {
  if (refusal_.empty()) return SendStatus::kSent;
  const SendStatus status =
      qp_.send_word(roce::kRefusalOpcode, expected_ - Sack::kPast, std::as_bytes(std::span(refusal_)));
  if (status != SendStatus::kBusy) refusal_.clear();
  return status;
}

// Makes an RNR NAK due. It is counted when it leaves.
void Responder::not_ready() {
  gap_reported_ = true;  // later packets are out of sequence now, which needs no NAK
  nak_ = Nak{roce::rnr_syndrome(qp_.attributes().min_rnr_timer), expected_, true};
}

// Holds an RNR NAK back for a moment, as the program may be about to post the receive request. Over a wire,
// the packet is kept and executed then. Over shared memory it is dropped, and its sender is asked for it.
void Responder::wait_for_receive(TimePoint now) {
  if (!nak_->for_receive) return;
  const bool is_kept = kept_.has(expected_);
  if (!is_kept && !qp_.route().traits.lossless) return;
  // Forwarded requests and tagged messages wait for something else than a receive request of this process.
  if (passed_.any() || qp_.receives().tags() != nullptr) return;
  if (wait_ == Wait::kNone || awaiting_ != expected_) {
    awaiting_ = expected_;
    awaits_since_ = now;
  } else if (now - awaits_since_ >= patience()) {
    return end_wait();
  }
  nak_.reset();
  acknowledgement_due_ = true;  // requests before it need not wait
  wait_ = Wait::kForReceive;
  next_look_ = awaits_since_ + patience();
  if (qp_.receives().shared() != nullptr) next_look_ = std::min(next_look_, now + kFirstLook);
  // Either a posting thread sees that it must ring, or this one sees its request.
  qp_.await_receive(true);
  if (!qp_.receives().any()) return;
  if (is_kept) {
    next_look_ = now;
  } else {
    ask_again();
  }
}

void Responder::end_wait() {
  wait_ = Wait::kNone;
  next_look_ = kNever;
  qp_.await_receive(false);
}

Duration Responder::patience() const {
  const Duration timeout = roce::ack_timeout(qp_.attributes().timeout);
  return timeout == Duration::zero() ? kReceivePatience : std::min(kReceivePatience, timeout / kPatiencePart);
}

// Asks the sender for the request. If another QP takes the receive request from a shared queue first, the
// wait continues.
void Responder::ask_again() {
  nak_ = Nak{roce::kReadySyndrome, expected_};
  wait_ = Wait::kForRequest;
  next_look_ = awaits_since_ + patience();
  qp_.await_receive(false);
}

void Responder::on_timer(TimePoint now) {
  if (next_look_ > now) return;
  if (wait_ != Wait::kForReceive || awaiting_ != expected_) return end_wait();
  if (qp_.receives().any()) return on_late_receive(now);
  const Duration waited = now - awaits_since_;
  if (waited >= patience()) {
    end_wait();
    return not_ready();
  }
  next_look_ = std::min(awaits_since_ + patience(), now + std::max(kFirstLook, waited / kLookPart));
}

void Responder::on_late_receive(TimePoint now) {
  if (!kept_.has(expected_)) return ask_again();
  gap_reported_ = false;
  execute_kept();
  if (nak_) return wait_for_receive(now);  // another QP was faster, or the next request waits
  end_wait();
  // The peer has not been told of a gap behind the packet that waited.
  const bool is_gap = !kept_.empty() && !kept_.has(expected_);
  if (is_gap && running_ && !is_heard_ && !gap_reported_) ask_for_expected();
}

void Responder::ask_for_expected() {
  gap_reported_ = true;
  nak_ = Nak{roce::nak_syndrome(NakCode::kSequenceError), expected_};
  qp_.count(kSequenceNaksSent);
}

// ---- requests that other processes execute

void Responder::pass_on(const roce::Packet& packet) {
  using Result = ForwardedRequests::Result;
  const auto [result, psns] = passed_.pass(packet, {expected_, msn_, inbound_.in_message()});
  if (result == Result::kNotReady) {
    not_ready();
    nak_->for_receive = false;
    return;
  }
  if (result == Result::kHeldBack) return hold_back(packet);
  if (result == Result::kInvalid) return refuse(NakCode::kInvalidRequest);
  expected_ = expected_ + psns;
}

// The packet waits until everything before it is answered: kept here, or else requested from its sender then.
void Responder::hold_back(const roce::Packet& packet) {
  passed_.hold_back();
  if (may_keep(packet, nullptr)) kept_.add(packet, psns_of(packet), expected_);
}

// The request has come before, and its owner has not answered. If that takes long, perhaps because the owner
// gets no processor, the requester is asked to wait: to it we are one adapter, which must not fall silent.
void Responder::on_unanswered(const roce::Packet& packet, TimePoint now) {
  if (packet.headers.ack_request) {
    passed_.note_asked(packet.headers.psn);
    if (is_heard_) arrivals_due_ = true;
  }
  if (nak_ || !passed_.asks_for_patience(now)) return;
  nak_ = Nak{roce::rnr_syndrome(ForwardedRequests::kPatienceTimer), answered() + 1};
}

void Responder::take(const ForwardedRequests::Verdict& verdict) {
  expected_ = expected_ - verdict.taken_back;
  if (verdict.msn) msn_ = *verdict.msn;
  if (verdict.acknowledge) acknowledgement_due_ = true;
  switch (verdict.next) {
    case ForwardedRequests::Verdict::Next::kNothing:
      return;
    case ForwardedRequests::Verdict::Next::kGoOn:
      if (kept_.has(expected_)) return execute_kept();
      return ask_for_expected();
    case ForwardedRequests::Verdict::Next::kNotReady:
      return not_ready();
    case ForwardedRequests::Verdict::Next::kRefuse:
      qp_.count(kErrorNaksSent);
      return give_up({roce::nak_syndrome(verdict.code), expected_}, verdict.event);
  }
}

void Responder::synchronize(Psn expected, uint32_t msn) {
  expected_ = expected;
  msn_ = msn & 0xffffff;
  gap_reported_ = false;
  acknowledgement_due_ = false;
  nak_.reset();
  dropped_.reset();
}

// ---- transmission

roce::Headers Responder::headers_for(Operation operation, Psn psn) const {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(service_, operation);
  headers.destination = qp_.attributes().destination;
  headers.psn = psn;
  return headers;
}

TransmitResult Responder::transmit_urgent(uint32_t& budget, TimePoint now) {
  if (has_late_receive()) on_late_receive(now);
  while (!replies_.empty()) {
    if (budget == 0) return TransmitResult::kMore;
    ResponderResources::Reply& reply = replies_.front();
    const SendStatus status = reply.resource.kind == ResponderResources::Kind::kAtomic
                                  ? send_atomic_acknowledge(reply)
                                  : send_read_response(reply);
    if (status == SendStatus::kBusy) return TransmitResult::kBusy;
    if (status == SendStatus::kFault) {  // the region was deregistered after the request was taken
      if (!reply.is_given_again()) {
        fail_read(reply.next);
        break;
      }
      if (refuse_repetition(reply) == SendStatus::kBusy) return TransmitResult::kBusy;
    }
    --budget;
    if (reply.next.is_after(reply.resource.last)) replies_.pop_front();
  }
  // Before a NAK: a peer that knows what has arrived need not go back.
  if (arrivals_due_) {
    if (budget == 0) return TransmitResult::kMore;
    if (send_arrivals() == SendStatus::kBusy) return TransmitResult::kBusy;
    --budget;
  }
  if (nak_) {
    if (budget == 0) return TransmitResult::kMore;
    if (send_refusal() == SendStatus::kBusy) return TransmitResult::kBusy;
    if (send_acknowledge(nak_->syndrome, nak_->psn) == SendStatus::kBusy) return TransmitResult::kBusy;
    --budget;
    note_nak(*nak_);
    dropped_.reset();  // everything from there on will be sent again
    // The NAK acknowledges everything before it, which is all there is, unless it asks to wait for an owner.
    if (!running_ || !nak_->psn.is_before(expected_)) acknowledgement_due_ = false;
    nak_.reset();
  }
  return TransmitResult::kIdle;
}

// The memory of a READ went away before the whole response was sent.
void Responder::fail_read(Psn psn) {
  replies_.stop();
  qp_.count(kErrorNaksSent);
  give_up({roce::nak_syndrome(NakCode::kRemoteAccess), psn}, IBV_EVENT_QP_ACCESS_ERR);
}

// Refuses a repeated READ. The peer most likely has its response, and has invalidated the key since. If it
// does not have it, this NAK says why no response comes. The part that was never sent follows, with a NAK of
// its own.
SendStatus Responder::refuse_repetition(ResponderResources::Reply& reply) {
  const Nak nak{roce::nak_syndrome(NakCode::kRemoteAccess), reply.next};
  const SendStatus status = send_acknowledge(nak.syndrome, nak.psn);
  if (status == SendStatus::kBusy) return status;
  note_nak(nak);
  reply.advance(reply.repeated ? reply.resource.last + 1 : reply.given);
  return status;
}

// RNR and sequence error NAKs are traced as frequent events.
void Responder::note_nak(const Nak& nak) {
  if (roce::aeth_kind(nak.syndrome) == roce::AethKind::kRnrNak) qp_.count(kRnrNaksSent);
  const trace::Recorder::Numbers numbers{nak.psn.value(), nak.syndrome};
  const bool is_refusal = roce::aeth_kind(nak.syndrome) == roce::AethKind::kNak &&
                          static_cast<NakCode>(roce::aeth_value(nak.syndrome)) != NakCode::kSequenceError;
  if (is_refusal) return qp_.note(trace::Kind::kNakSent, numbers);
  qp_.note_frequent(trace::Kind::kNakSent, numbers);
}

bool Responder::transmit_acknowledgement() {
  if (!acknowledgement_due_) return true;
  if (send_acknowledge(roce::ack_syndrome(), answered()) == SendStatus::kBusy) return false;
  acknowledgement_due_ = false;
  return true;
}

// Sends one packet of the response, or a super-packet.
SendStatus Responder::send_read_response(ResponderResources::Reply& reply) {
  const ResponderResources::Resource& r = reply.resource;
  const uint32_t most = service_ == roce::Service::kRc ? qp_.route().traits.packets_joined(mtu()) : 1;
  const uint32_t offset = static_cast<uint32_t>(reply.next - r.first) * mtu();
  const uint32_t bytes = std::min(most * mtu(), r.length - offset);
  const uint32_t count = packets_for(bytes, mtu());
  const Psn past = reply.next + count;
  const bool first = reply.next == r.first;
  const bool last = past.is_after(r.last);
  Pieces pieces;
  if (bytes > 0) {
    const std::byte* at =
        remote_memory(qp_.keys(), r.user, r.rkey, r.address + offset, bytes, IBV_ACCESS_REMOTE_READ);
    if (at == nullptr) return SendStatus::kFault;
    pieces.add({at, bytes});
  }
  const Operation operation = first ? (last ? Operation::kReadResponseOnly : Operation::kReadResponseFirst)
                                    : (last ? Operation::kReadResponseLast : Operation::kReadResponseMiddle);
  roce::Headers headers = headers_for(operation, reply.next);
  headers.pad = roce::padding_of(bytes);
  headers.syndrome = roce::ack_syndrome();
  headers.msn = r.msn;
  show_progress();
  const SendStatus status = qp_.send_out({qp_.attributes().path, headers, pieces.get(), bytes, count});
  if (status != SendStatus::kSent) return status;
  qp_.count(kSentPackets, count);
  qp_.count(kSentBytes, bytes);
  reply.advance(past);
  return status;
}

SendStatus Responder::send_atomic_acknowledge(ResponderResources::Reply& reply) {
  roce::Headers headers = headers_for(Operation::kAtomicAcknowledge, reply.resource.first);
  headers.syndrome = roce::ack_syndrome();
  headers.msn = reply.resource.msn;
  headers.atomic_original = reply.resource.original;
  show_progress();
  const SendStatus status = qp_.send_out({qp_.attributes().path, headers, {}, 0});
  if (status != SendStatus::kSent) return status;
  qp_.count(kSentPackets);
  reply.advance(reply.next + 1);
  return status;
}

SendStatus Responder::send_acknowledge(uint8_t syndrome, Psn psn) {
  roce::Headers headers = headers_for(Operation::kAcknowledge, psn);
  headers.syndrome = syndrome;
  headers.msn = msn_;
  show_progress();
  const SendStatus status = qp_.send_out({qp_.attributes().path, headers, {}, 0});
  if (status == SendStatus::kSent) qp_.count(kSentPackets);
  return status;
}

// ---- ATOMIC WRITE and FLUSH (IBTA volume 1 release 1.5, annex A19): executed in order like an atomic, and
// answered by a READ response without payload, which is kept for duplicates.

void Responder::answer_empty() {
  message_ended();
  ResponderResources::Resource resource;
  resource.valid = true;
  resource.kind = ResponderResources::Kind::kEmpty;
  resource.first = resource.last = expected_;
  resource.msn = msn_;
  replies_.add(resource);
  ++expected_;
}

void Responder::execute_atomic_write(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  constexpr uint32_t kBytes = sizeof(uint64_t);
  if (inbound_.in_message() || !takes_reads() || !qp_.may(IBV_ACCESS_REMOTE_WRITE) ||
      packet.payload.size() != kBytes || headers.dma_length != kBytes || headers.address % kBytes != 0 ||
      !replies_.has_room()) {
    return refuse(NakCode::kInvalidRequest);
  }
  std::byte* at = remote_memory(qp_.keys(), qp_.remote_user(), headers.rkey, headers.address, kBytes,
                                IBV_ACCESS_REMOTE_WRITE);
  if (at == nullptr) return refuse(NakCode::kRemoteAccess);
  // A region may start at any address, whatever addresses its peers use: the processor needs alignment here
  // too.
  if (reinterpret_cast<uintptr_t>(at) % kBytes != 0) return refuse(NakCode::kInvalidRequest);
  if (!memory::copy_in_order_guarded(at, packet.payload)) return refuse(NakCode::kRemoteAccess);
  answer_empty();
}

void Responder::execute_flush(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  const memory::Access wanted = memory::flush_access(headers.flush_type);
  const bool known = wanted != 0 &&
                     headers.flush_type <= (memory::kPlacementGlobal | memory::kPlacementPersistent) &&
                     headers.flush_selectivity <= memory::kSelectRegion;
  if (!known || inbound_.in_message() || !takes_reads() || (qp_.attributes().access & wanted) != wanted ||
      !replies_.has_room()) {
    return refuse(NakCode::kInvalidRequest);
  }
  const RemoteUser user = qp_.remote_user();
  const auto region = qp_.config().keys->open(headers.rkey);
  const bool allowed = region.has_value() && region->allows_remote(wanted, user.pd, user.qpn.value());
  // For a whole region the range has no meaning (annex A19.3.1).
  const bool inside = headers.flush_selectivity == memory::kSelectRegion ||
                      (allowed && region->at(headers.address, headers.dma_length) != nullptr);
  if (!allowed || !inside) return refuse(NakCode::kRemoteAccess);
  memory::make_visible();
  answer_empty();
}

// ---- early packets
//
// They are kept until the missing ones have come and owners of queues have answered everything before. Then
// they are executed in order, and one acknowledgement covers all of them (IBTA volume 1, 9.7.5.1.2).

// A READ owns the PSNs of its response. A READ that is too long is refused in its turn.
uint32_t Responder::psns_of(const roce::Packet& packet) const {
  if (packet.headers.operation() != Operation::kReadRequest) return packet.count;
  return packets_for(std::min(packet.headers.dma_length, kMaxMessageBytes), mtu());
}

void Responder::on_early(const roce::Packet& packet, uint32_t ahead, const LentPayload* lent) {
  const bool is_gap = !kept_.has(expected_);  // else the expected packet is here, and waits
  const bool gap_is_new = !kept_.has_after(expected_);
  if (is_gap && gap_is_new && !gap_reported_) {
    qp_.note_frequent(trace::Kind::kOutOfSequence, {packet.headers.psn.value(), expected_.value()});
  }
  if (may_keep(packet, lent) && ahead < ReorderBuffer::kMaxAhead) {
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

// Whether a control packet's PSN is where the peer was then, or a little before: only the peer can know that.
bool Responder::knows_where_we_are(Psn word) const {
  const int32_t behind = expected_ - (word + Sack::kPast);
  return behind >= 0 && behind < static_cast<int32_t>(ReorderBuffer::kMaxAhead);
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
