// SPDX-License-Identifier: Apache-2.0
#include "transport/requester.h"

#include <algorithm>
#include <array>
#include <bit>

#include "roce/aeth.h"
#include "transport/gather.h"

namespace verbena::transport {
namespace {

using queues::SendWqe;
using roce::Operation;
using roce::Psn;

// What a packet costs in flight beside its payload: headers, and the kernel's book-keeping.
constexpr uint32_t kPacketOverhead = 64;
// What UDP_SEGMENT takes at once: the kernel's limits.
constexpr uint32_t kMostSegments = 64;
constexpr uint32_t kSuperPacketBytes = 65507;
// READ data asked for with one request: what one GSO super-packet brings, 64 segments in 64 KiB.
constexpr uint32_t kReadChunkBytes = 60 * 1024;
constexpr uint32_t kReadChunkPackets = 64;
// More packets than this are never in flight, however small: the receiving socket's buffer counts packets
// too.
constexpr int32_t kMostPackets = 1024;
// Requests of at most so many bytes may wait until so many are together: what fits one GSO super-packet.
constexpr uint32_t kGatherBytes = 1024;
constexpr uint32_t kGatherRequests = 64;
// The longest message (max_msg_sz): its PSNs stay well below half the PSN space at the smallest MTU.
constexpr uint32_t kMaxMessageBytes = 1u << 30;
// rnr_retry 7 means without end (IBTA volume 1, 9.7.5.2.8).
constexpr uint8_t kInfiniteRnrRetry = 7;

struct Shape {
  Operation first, middle, last, only;
};

// By enum ibv_wr_opcode; requests that are not a run of data packets have no line.
constexpr std::array<Shape, 10> kShapes = [] {
  std::array<Shape, 10> s{};
  s[IBV_WR_RDMA_WRITE] = {Operation::kWriteFirst, Operation::kWriteMiddle, Operation::kWriteLast,
                          Operation::kWriteOnly};
  s[IBV_WR_RDMA_WRITE_WITH_IMM] = {Operation::kWriteFirst, Operation::kWriteMiddle,
                                   Operation::kWriteLastImmediate, Operation::kWriteOnlyImmediate};
  s[IBV_WR_SEND] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLast,
                    Operation::kSendOnly};
  s[IBV_WR_SEND_WITH_IMM] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLastImmediate,
                             Operation::kSendOnlyImmediate};
  s[IBV_WR_SEND_WITH_INV] = {Operation::kSendFirst, Operation::kSendMiddle, Operation::kSendLastInvalidate,
                             Operation::kSendOnlyInvalidate};
  return s;
}();

bool is_read(const SendWqe& wqe) {
  return wqe.opcode == IBV_WR_RDMA_READ;
}
bool is_atomic(const SendWqe& wqe) {
  return wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
bool needs_response(const SendWqe& wqe) {
  return is_read(wqe) || is_atomic(wqe);
}
bool is_data(const SendWqe& wqe) {
  return wqe.opcode <= IBV_WR_SEND_WITH_IMM || wqe.opcode == IBV_WR_SEND_WITH_INV;
}
static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_SEND_WITH_IMM == 3);
bool is_write(const SendWqe& wqe) {
  return wqe.opcode == IBV_WR_RDMA_WRITE || wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool wakes_peer(const SendWqe& wqe) {
  return wqe.opcode == IBV_WR_SEND || wqe.opcode == IBV_WR_SEND_WITH_IMM ||
         wqe.opcode == IBV_WR_SEND_WITH_INV || wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// What is wrong with a request by itself; such a one is never sent. (Posting refuses what it can see; the
// rest ends here.)
std::optional<ibv_wc_status> fault_of(const SendWqe& wqe) {
  if (!is_data(wqe) && !needs_response(wqe)) return IBV_WC_LOC_QP_OP_ERR;
  if (is_atomic(wqe) && wqe.length < sizeof(uint64_t)) return IBV_WC_LOC_LEN_ERR;
  if (wqe.length > kMaxMessageBytes) return IBV_WC_LOC_LEN_ERR;
  return std::nullopt;
}

uint32_t packets_in_chunk(uint32_t mtu) {
  return std::min(kReadChunkBytes / mtu, kReadChunkPackets);
}

// Bytes of the message before its packet number `index`.
uint32_t offset_of(const SendWqe& wqe, uint32_t index, uint32_t mtu) {
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{index} * mtu, wqe.length));
}

}  // namespace

void Requester::start() {
  const QpAttributes& attributes = qp_.attributes();
  running_ = true;
  head_ = cursor_ = assigned_ = ring().consumed();
  unacked_ = next_ = next_new_ = highest_ = attributes.send_psn;
  const uint32_t run =
      std::min(kMostSegments, kSuperPacketBytes / (attributes.path_mtu + roce::kBthBytes + roce::kIcrcBytes));
  run_bytes_ = run * (attributes.path_mtu + kPacketOverhead);
  window_.reset(attributes.path_mtu + kPacketOverhead, run_bytes_);
  inflight_ = since_ack_request_ = reads_outstanding_ = 0;
  stopped_.reset();
  unsendable_.reset();
  implied_loss_at_.reset();
  ack_deadline_ = rnr_deadline_ = kNever;
  retries_left_ = attributes.retry_count;
  rnr_retries_left_ = attributes.rnr_retry;
}

void Requester::halt() {
  running_ = false;
  highest_ = unacked_;
  ack_deadline_ = rnr_deadline_ = kNever;
}

Duration Requester::ack_timeout() const {
  const Duration asked = roce::ack_timeout(qp_.attributes().timeout);
  if (asked == Duration::zero()) return asked;
  return std::max(asked, qp_.config().least_ack_timeout);
}

roce::Headers Requester::headers_for(Operation operation) const {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, operation);
  headers.destination = qp_.attributes().destination;
  headers.psn = next_;
  return headers;
}

uint32_t Requester::flight_bytes(const SendWqe& wqe, Psn from, Psn limit) const {
  const auto begin = static_cast<uint32_t>(from - wqe.first_psn);
  const auto end = static_cast<uint32_t>(limit - wqe.first_psn);
  return offset_of(wqe, end, mtu()) - offset_of(wqe, begin, mtu()) + (end - begin) * kPacketOverhead;
}

// ---- transmission

bool Requester::may_start(const SendWqe& wqe) const {
  if (needs_response(wqe) && reads_outstanding_ >= std::max<uint32_t>(qp_.attributes().max_rd_atomic, 1))
    return false;
  const bool at_first_packet = cursor_ == assigned_ || next_ == wqe.first_psn;
  // A fence waits for all READs and atomics before it (IBTA volume 1, 10.8.3.3).
  return !(at_first_packet && wqe.has_flag(IBV_SEND_FENCE) && reads_outstanding_ > 0);
}

bool Requester::can_transmit() const {
  if (!running_ || stopped_ || rnr_deadline_ != kNever) return false;
  if (cursor_ == ring().posted()) return false;
  // In SQD requests that have begun go on, no new one begins.
  if (qp_.state() != IBV_QPS_RTS && cursor_ == assigned_) return false;
  if (next_ - unacked_ >= kMostPackets && inflight_ > 0) return false;
  const SendWqe& wqe = ring().at(cursor_);
  return may_start(wqe) && window_allows(std::min(wqe.length, mtu()) + kPacketOverhead);
}

bool Requester::may_gather() const {
  if (!running_ || !has_outstanding() || next_.is_before(highest_)) return false;
  const uint32_t unsent = ring().posted() - cursor_;
  return unsent > 0 && unsent < kGatherRequests && unsent < ring().capacity() / 4 &&
         ring().at(cursor_ + unsent - 1).length <= kGatherBytes;
}

void Requester::assign(SendWqe& wqe) {
  const uint32_t packets = is_atomic(wqe) ? 1 : std::max<uint32_t>(1, (wqe.length + mtu() - 1) / mtu());
  wqe.first_psn = next_new_;
  wqe.last_psn = next_new_ + (packets - 1);
  next_new_ = next_new_ + packets;
  ++assigned_;
}

TransmitResult Requester::transmit(PacketSink& sink, TimePoint now, uint32_t& budget) {
  while (can_transmit()) {
    if (budget == 0) return TransmitResult::kMore;
    SendWqe& wqe = ring().at(cursor_);
    if (cursor_ == assigned_) assign(wqe);
    if (next_ == wqe.first_psn) {
      if (const auto fault = fault_of(wqe)) {
        stop_at_cursor(*fault);
        continue;
      }
    }
    const SendStatus status = is_read(wqe)     ? send_read(wqe, sink)
                              : is_atomic(wqe) ? send_atomic(wqe, sink)
                                               : send_data(wqe, sink);
    if (status == SendStatus::kBusy) return TransmitResult::kBusy;
    if (status == SendStatus::kFault) {
      stop_at_cursor(IBV_WC_LOC_PROT_ERR);
      continue;
    }
    --budget;
    if (ack_deadline_ == kNever && ack_timeout() != Duration::zero()) ack_deadline_ = now + ack_timeout();
  }
  return TransmitResult::kIdle;
}

// The request at the cursor cannot be sent. It fails once those before it are done.
void Requester::stop_at_cursor(ibv_wc_status status) {
  if (cursor_ == head_) {
    fail_head(status);
    return;
  }
  if (since_ack_request_ > 0 && unsendable_ != cursor_) {
    unsendable_ = cursor_;
    ask_again();
    return;
  }
  stopped_ = status;
}

// What was sent last was sent in the belief that more would follow, and asked for no acknowledgement. It is
// sent once more, to ask. REQUIRES: since_ack_request_ > 0, the last packet is unacknowledged
void Requester::ask_again() {
  if (cursor_ == assigned_ || next_ == ring().at(cursor_).first_psn) --cursor_;
  inflight_ -= std::min(inflight_, flight_bytes(ring().at(cursor_), next_ - 1, next_));
  next_ = next_ - 1;
  since_ack_request_ = 0;
}

void Requester::drain() {
  if (!running_) return;
  if (head_ == assigned_) {
    announce_drained();
  } else if (cursor_ == assigned_ && since_ack_request_ > 0) {
    ask_again();
  }
}

void Requester::announce_drained() {
  if (qp_.attributes().notify_drained) qp_.emit(IBV_EVENT_SQ_DRAINED);
}

// Whether another packet will surely be sent right after this one, which can then carry the request for an
// acknowledgement.
bool Requester::more_follows(bool ends_message, uint32_t bytes) const {
  if (unsendable_ && (cursor_ == *unsendable_ || cursor_ + 1 == *unsendable_)) return false;
  if (inflight_ + bytes + mtu() + 2 * kPacketOverhead > window_.usable()) return false;
  if (next_ - unacked_ + 1 >= kMostPackets) return false;
  if (!ends_message) return true;
  if (cursor_ + 1 == ring().posted()) return false;
  if (qp_.state() != IBV_QPS_RTS && cursor_ + 1 == assigned_) return false;
  const SendWqe& following = ring().at(cursor_ + 1);
  return !needs_response(following) && !following.has_flag(IBV_SEND_FENCE);
}

SendStatus Requester::send_data(SendWqe& wqe, PacketSink& sink) {
  const auto index = static_cast<uint32_t>(next_ - wqe.first_psn);
  const uint32_t offset = offset_of(wqe, index, mtu());
  const uint32_t bytes = std::min(mtu(), wqe.length - offset);
  const bool starts = index == 0;
  const bool ends = next_ == wqe.last_psn;

  Pieces pieces;
  if (wqe.is_inline()) {
    if (bytes > 0) pieces.add({wqe.inline_data() + offset, bytes});
  } else if (!gather(*qp_.config().keys, qp_.config().pd, wqe.sges(), offset, bytes, 0, pieces)) {
    return SendStatus::kFault;
  }

  const Shape& shape = kShapes[wqe.opcode];
  roce::Headers headers =
      headers_for(starts ? (ends ? shape.only : shape.first) : (ends ? shape.last : shape.middle));
  headers.pad = roce::padding_of(bytes);
  headers.solicited = ends && wqe.has_flag(IBV_SEND_SOLICITED) && wakes_peer(wqe);
  headers.immediate = byteswap(wqe.immediate);
  headers.invalidate_rkey = wqe.immediate;
  if (starts && is_write(wqe)) {
    headers.address = wqe.remote_address;
    headers.rkey = wqe.rkey;
    headers.dma_length = wqe.length;
  }
  headers.ack_request = !more_follows(ends, bytes) || since_ack_request_ + bytes + kPacketOverhead >=
                                                          std::min(run_bytes_, window_.usable() / 2);

  const SendStatus status = sink.send({qp_.attributes().path, headers, pieces.get(), bytes});
  if (status != SendStatus::kSent) return status;
  since_ack_request_ = headers.ack_request ? 0 : since_ack_request_ + bytes + kPacketOverhead;
  sent(wqe, next_ + 1, bytes);
  return status;
}

bool Requester::is_chunk_end(const SendWqe& wqe, Psn psn) const {
  if (psn == wqe.last_psn) return true;
  return (static_cast<uint32_t>(psn - wqe.first_psn) + 1) % packets_in_chunk(mtu()) == 0;
}

SendStatus Requester::send_read(SendWqe& wqe, PacketSink& sink) {
  const uint32_t packets = packets_in_chunk(mtu());
  const auto index = static_cast<uint32_t>(next_ - wqe.first_psn);
  const auto total = static_cast<uint32_t>(wqe.last_psn - wqe.first_psn) + 1;
  const uint32_t limit = std::min(total, (index / packets + 1) * packets);
  const uint32_t offset = offset_of(wqe, index, mtu());
  const uint32_t bytes = offset_of(wqe, limit, mtu()) - offset;

  // The place for the data must be right before the data is asked for.
  Pieces pieces;
  if (!gather(*qp_.config().keys, qp_.config().pd, wqe.sges(), offset, bytes, IBV_ACCESS_LOCAL_WRITE,
              pieces)) {
    return SendStatus::kFault;
  }

  roce::Headers headers = headers_for(Operation::kReadRequest);
  headers.ack_request = true;
  headers.address = wqe.remote_address + offset;
  headers.rkey = wqe.rkey;
  headers.dma_length = bytes;
  const SendStatus status = sink.send({qp_.attributes().path, headers, {}, 0});
  if (status != SendStatus::kSent) return status;
  since_ack_request_ = 0;
  ++reads_outstanding_;
  sent(wqe, wqe.first_psn + limit, 0);
  return status;
}

SendStatus Requester::send_atomic(SendWqe& wqe, PacketSink& sink) {
  Pieces pieces;
  if (!gather(*qp_.config().keys, qp_.config().pd, wqe.sges(), 0, sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE,
              pieces)) {
    return SendStatus::kFault;
  }
  const bool compares = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  roce::Headers headers = headers_for(compares ? Operation::kCompareSwap : Operation::kFetchAdd);
  headers.ack_request = true;
  headers.address = wqe.remote_address;
  headers.rkey = wqe.rkey;
  headers.swap_add = compares ? wqe.swap : wqe.compare_add;
  headers.compare = compares ? wqe.compare_add : 0;
  const SendStatus status = sink.send({qp_.attributes().path, headers, {}, 0});
  if (status != SendStatus::kSent) return status;
  since_ack_request_ = 0;
  ++reads_outstanding_;
  sent(wqe, next_ + 1, 0);
  return status;
}

void Requester::sent(SendWqe& wqe, Psn past, uint32_t payload_bytes) {
  qp_.count(kSentPackets);
  qp_.count(kSentBytes, payload_bytes);
  if (next_.is_before(highest_)) qp_.count(kRetransmittedPackets);
  inflight_ += flight_bytes(wqe, next_, past);
  next_ = past;
  if (highest_.is_before(next_)) highest_ = next_;
  if (next_ == wqe.last_psn + 1) ++cursor_;
}

// ---- acknowledgement

// Takes everything before `limit` as received by the peer. Stops at a READ or atomic whose response has not
// come: false.
bool Requester::acknowledge_before(Psn limit) {
  while (head_ != assigned_ && unacked_.is_before(limit)) {
    const SendWqe& wqe = ring().at(head_);
    if (needs_response(wqe)) return false;
    const bool whole = wqe.last_psn.is_before(limit);
    settle(wqe, whole ? wqe.last_psn + 1 : limit);
    if (whole) retire(IBV_WC_SUCCESS);
  }
  return true;
}

// Moves unacked_ up to `limit`, within the request at head_ or to its end.
void Requester::settle(const SendWqe& wqe, Psn limit) {
  const Psn counted =
      limit.is_after(next_) ? next_ : limit;  // beyond next_: sent before a loss, not in flight any more
  const uint32_t bytes = counted.is_after(unacked_) ? flight_bytes(wqe, unacked_, counted) : 0;
  inflight_ -= std::min(inflight_, bytes);
  window_.on_acknowledged(bytes);
  unacked_ = limit;
}

// Completes the request at head_.
void Requester::retire(ibv_wc_status status) {
  const SendWqe& wqe = ring().at(head_);
  qp_.complete_send(wqe, status);
  ring().consume();
  ++head_;
}

// After unacked_ and head_ have moved: whoever is now behind them catches up.
void Requester::progressed(TimePoint now) {
  if (next_.is_before(unacked_)) {
    next_ = unacked_;
    cursor_ = head_;
  }
  const QpAttributes& attributes = qp_.attributes();
  retries_left_ = attributes.retry_count;
  rnr_retries_left_ = attributes.rnr_retry;
  rnr_deadline_ = kNever;
  const bool waits = unacked_.is_before(highest_) && ack_timeout() != Duration::zero();
  ack_deadline_ = waits ? now + ack_timeout() : kNever;
  if (stopped_ && head_ == cursor_) {
    fail_head(*stopped_);
    return;
  }
  if (qp_.state() == IBV_QPS_SQD && head_ == assigned_) announce_drained();
}

void Requester::on_acknowledge(const roce::Headers& headers, TimePoint now) {
  // Answers to what was never sent, or was answered long ago.
  if (!running_ || !headers.psn.is_before(highest_) || headers.psn.is_before(unacked_)) return;
  const roce::AethKind kind = roce::aeth_kind(headers.syndrome);
  if (kind == roce::AethKind::kReserved) return;
  const Psn before = unacked_;
  const Psn limit = kind == roce::AethKind::kAck ? headers.psn + 1 : headers.psn;
  const bool reached = acknowledge_before(limit);
  if (unacked_ != before) progressed(now);
  if (!running_) return;
  if (!reached) {
    on_implied_loss();
    return;
  }
  if (kind == roce::AethKind::kRnrNak) {
    on_rnr(roce::aeth_value(headers.syndrome), now);
  } else if (kind == roce::AethKind::kNak) {
    switch (static_cast<roce::NakCode>(roce::aeth_value(headers.syndrome))) {
      case roce::NakCode::kSequenceError:
        qp_.count(kSequenceNaksReceived);
        window_.on_loss();
        go_back();
        break;
      case roce::NakCode::kInvalidRequest:
      case roce::NakCode::kInvalidRdRequest:
        qp_.count(kErrorNaksReceived);
        fail_head(IBV_WC_REM_INV_REQ_ERR);
        break;
      case roce::NakCode::kRemoteAccess:
        qp_.count(kErrorNaksReceived);
        fail_head(IBV_WC_REM_ACCESS_ERR);
        break;
      case roce::NakCode::kRemoteOperational:
        qp_.count(kErrorNaksReceived);
        fail_head(IBV_WC_REM_OP_ERR);
        break;
    }
  }
}

void Requester::on_rnr(uint8_t timer_code, TimePoint now) {
  // We wait already: the network has doubled the NAK.
  if (rnr_deadline_ != kNever) return;
  qp_.count(kRnrNaksReceived);
  if (rnr_retries_left_ == 0) {
    fail_head(IBV_WC_RNR_RETRY_EXC_ERR);
    return;
  }
  if (qp_.attributes().rnr_retry != kInfiniteRnrRetry) --rnr_retries_left_;
  go_back();
  ack_deadline_ = kNever;
  rnr_deadline_ = now + roce::rnr_delay(timer_code);
}

// The READ or atomic request that a response with this PSN answers, if it is the response we wait for.
SendWqe* Requester::response_target(Psn psn, TimePoint now) {
  if (!running_ || !psn.is_before(highest_) || psn.is_before(unacked_)) return nullptr;
  // A response acknowledges all that came before it.
  const Psn before = unacked_;
  const bool reached = acknowledge_before(psn);
  if (unacked_ != before) progressed(now);
  if (!running_) return nullptr;
  if (!reached || head_ == assigned_ || !needs_response(ring().at(head_))) {
    // One before it is missing. (Or it answers a SEND or WRITE: nonsense, which the timer will outlive.)
    if (!reached) on_implied_loss();
    return nullptr;
  }
  return &ring().at(head_);
}

void Requester::on_read_response(const roce::Packet& packet, TimePoint now) {
  const Psn psn = packet.headers.psn;
  SendWqe* wqe = response_target(psn, now);
  if (wqe == nullptr || !is_read(*wqe)) return;
  const auto index = static_cast<uint32_t>(psn - wqe->first_psn);
  const uint32_t offset = offset_of(*wqe, index, mtu());
  const bool ends = packet.headers.info().ends_message;
  if (packet.payload.size() != std::min(mtu(), wqe->length - offset) || ends != is_chunk_end(*wqe, psn)) {
    fail_head(IBV_WC_BAD_RESP_ERR);
    return;
  }
  if (scatter(*qp_.config().keys, qp_.config().pd, wqe->sges(), offset, packet.payload) !=
      ScatterResult::kDone) {
    fail_head(IBV_WC_LOC_PROT_ERR);
    return;
  }
  if (psn.is_before(next_) && is_chunk_end(*wqe, psn) && reads_outstanding_ > 0) --reads_outstanding_;
  settle(*wqe, psn + 1);
  if (psn == wqe->last_psn) retire(IBV_WC_SUCCESS);
  progressed(now);
}

void Requester::on_atomic_acknowledge(const roce::Headers& headers, TimePoint now) {
  SendWqe* wqe = response_target(headers.psn, now);
  if (wqe == nullptr || !is_atomic(*wqe)) return;
  const uint64_t original = headers.atomic_original;
  if (scatter(*qp_.config().keys, qp_.config().pd, wqe->sges(), 0, std::as_bytes(std::span(&original, 1))) !=
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
  window_.on_loss();
  go_back();
}

void Requester::go_back() {
  if (next_ == unacked_) return;
  next_ = unacked_;
  cursor_ = head_;
  inflight_ = reads_outstanding_ = since_ack_request_ = 0;
  stopped_.reset();  // found again when the cursor gets there
}

void Requester::fail_head(ibv_wc_status status) {
  retire(status);
  qp_.fail();
}

void Requester::on_timer(TimePoint now) {
  if (!running_) return;
  if (rnr_deadline_ <= now) rnr_deadline_ = kNever;
  if (ack_deadline_ > now) return;
  ack_deadline_ = kNever;
  if (!has_outstanding()) return;
  qp_.count(kLocalAckTimeouts);
  if (retries_left_ == 0) {
    fail_head(IBV_WC_RETRY_EXC_ERR);
    return;
  }
  --retries_left_;
  window_.on_timeout();
  implied_loss_at_.reset();
  go_back();
  // The timer may run up to four times as long as asked (IBTA volume 1, 9.7.6.1.3). A peer that is just not
  // given a processor has twice as long each time, and so the best chance the rules allow.
  const int tries = qp_.attributes().retry_count - retries_left_;
  ack_deadline_ = now + ack_timeout() * (1 << std::min(tries, 2));
}

}  // namespace verbena::transport
