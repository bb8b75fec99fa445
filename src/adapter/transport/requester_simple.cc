// SPDX-License-Identifier: Apache-2.0
// Requests of one packet, or of some that go as one, that nothing stands in the way of. Where messages go by
// memory, what transmit() asks of each packet takes longer than the message.
#include <algorithm>
#include <array>
#include <span>

#include "adapter/transport/requester.h"
#include "adapter/transport/send_request.h"

namespace verbena::transport {

using queues::SendWqe;
using roce::Operation;

namespace {

// Packets, or what counts as one in a copy.
constexpr uint32_t kMaxAtOnce = 64;

}  // namespace

// Everything that was posted before is on its way or done, and none of it has to be repeated.
[[gnu::always_inline]] inline bool Requester::may_send_simply() const {
  return running_ && cursor_ == assigned_ && next_ == highest_ && !stopped_ && rnr_deadline_ == kNever &&
         !holds_new() && qp_.state() == IBV_QPS_RTS;
}

bool Requester::is_simple(const SendWqe& wqe) const {
  const bool sends = wqe.opcode == IBV_WR_SEND || wqe.opcode == IBV_WR_SEND_WITH_IMM;
  const uint32_t most = is_plain(wqe) ? sizes_.joined * mtu() : mtu();
  return sends && wqe.num_sge <= 1 && wqe.length <= most &&
         (!wqe.has_flag(IBV_SEND_FENCE) || reads_outstanding_ == 0);
}

// Whether it goes as a PlainSend, of one packet or of several.
bool Requester::is_plain(const SendWqe& wqe) const {
  return wqe.opcode == IBV_WR_SEND && service_ == roce::Service::kRc;
}

bool Requester::may_be_joined(const SendWqe& wqe) {
  return wqe.opcode == IBV_WR_SEND && wqe.num_sge <= 1 && wqe.length <= kLongestJoinedMessage &&
         !wqe.has_flag(IBV_SEND_SOLICITED) && !wqe.has_flag(IBV_SEND_FENCE);
}

// Small messages that leave as one (Traits::joined_messages).
struct Requester::Together {
  uint32_t count = 0;
  uint32_t bytes = 0;
  std::array<ConstBytes, kMaxJoinedMessages> pieces;
  std::array<uint8_t, kMaxJoinedMessages> lengths;
};

// Those that begin at the cursor, up to the first that is anything else.
Requester::Together Requester::find_together(uint32_t most) const {
  Together found;
  LocalKeys keys(qp_.keys(), qp_.config().pd, 0);
  for (; found.count < most; ++found.count) {
    const SendWqe& wqe = ring().at(cursor_ + found.count);
    if (!may_be_joined(wqe) || inflight_ + found.bytes + wqe.length > window_) break;
    const std::byte* from = wqe.inline_data();
    if (!wqe.is_inline() && wqe.length > 0) {
      from = keys.at(wqe.sges()[0], wqe.length);
      if (from == nullptr) break;
    }
    found.pieces[found.count] = {from, wqe.length};
    found.lengths[found.count] = static_cast<uint8_t>(wqe.length);
    found.bytes += wqe.length;
  }
  return found;
}

bool Requester::send_simple(TimePoint now, std::optional<Acknowledgement>& acknowledgement) {
  const uint32_t posted = ring().posted();
  if (cursor_ == posted) return true;
  if (!may_send_simply()) [[unlikely]]
    return false;
  for (uint32_t budget = kMaxAtOnce; cursor_ != posted;) {
    if (budget == 0) return false;
    SendWqe& wqe = ring().at(cursor_);
    if (qp_.route().direct != nullptr && may_go_direct(wqe)) {
      direct_refused_ = !go_direct(wqe, budget);
      if (direct_refused_ || !running_) return false;
      continue;
    }
    if (!is_simple(wqe)) [[unlikely]]
      return false;
    const uint32_t packets = wqe.length <= mtu() ? 1 : packets_for(wqe.length, mtu());
    if (!window_allows(wqe.length + packets * sizes_.charge)) [[unlikely]]
      return false;
    if (next_ - unacked_ >= sizes_.max_packets && inflight_ > 0) [[unlikely]]
      return false;
    const uint32_t most = std::min({posted - cursor_, sizes_.joined_messages, budget});
    if (most > 1) [[unlikely]] {
      const Together messages = find_together(most);
      if (messages.count > 1) {
        if (send_together(messages, acknowledgement) != SendStatus::kSent) return false;
        await_acknowledgement(now);
        budget -= messages.count;
        continue;
      }
    }
    if (send_one(wqe, packets, acknowledgement) != SendStatus::kSent) [[unlikely]]
      return false;
    await_acknowledgement(now);
    budget -= std::min(budget, packets);
  }
  return true;
}

// The request gets its PSN only if it has been sent: transmit() begins with it otherwise.
SendStatus Requester::send_one(SendWqe& wqe, uint32_t packets,
                               std::optional<Acknowledgement>& acknowledgement) {
  const uint32_t bytes = wqe.length;
  ConstBytes piece(wqe.inline_data(), bytes);
  if (!wqe.is_inline() && bytes > 0) {
    const std::byte* const from = local_memory(qp_.keys(), qp_.config().pd, wqe.sges()[0], bytes, 0);
    if (from == nullptr) return SendStatus::kFault;
    piece = {from, bytes};
  }
  const bool is_last = cursor_ + 1 == ring().posted();
  const bool asks = is_last || must_ask(packets, bytes, true, cursor_);
  const SendStatus status = is_plain(wqe) ? send_plain(wqe, piece, packets, asks, acknowledgement)
                                          : send_with_headers(wqe, piece, asks, acknowledgement);
  if (status != SendStatus::kSent) [[unlikely]]
    return status;
  acknowledgement.reset();
  wqe.first_psn = next_;
  wqe.last_psn = next_ + (packets - 1);
  wqe.executed = false;
  left_simply(1, packets, bytes, asks);
  return status;
}

SendStatus Requester::send_plain(const SendWqe& wqe, ConstBytes payload, uint32_t packets, bool asks,
                                 const std::optional<Acknowledgement>& acknowledgement) {
  return qp_.send_out(PlainSend{.headers = {.opcode = PlainSend::kOpcode,
                                            .pad = roce::padding_of(wqe.length),
                                            .solicited = wqe.has_flag(IBV_SEND_SOLICITED),
                                            .ack_request = asks,
                                            .destination = qp_.attributes().destination,
                                            .psn = next_},
                                .payload = payload,
                                .count = packets,
                                .acknowledgement = acknowledgement ? &*acknowledgement : nullptr});
}

SendStatus Requester::send_with_headers(const SendWqe& wqe, ConstBytes payload, bool asks,
                                        const std::optional<Acknowledgement>& acknowledgement) {
  const bool immediate = wqe.opcode == IBV_WR_SEND_WITH_IMM;
  roce::Headers headers =
      headers_for(immediate ? Operation::kSendOnlyImmediate : Operation::kSendOnly, next_);
  headers.pad = roce::padding_of(wqe.length);
  headers.solicited = wqe.has_flag(IBV_SEND_SOLICITED);
  headers.ack_request = asks;
  headers.immediate = byteswap(wqe.immediate);
  headers.xrc_srq = wqe.remote_srqn;
  return qp_.send_out(OutgoingPacket{.path = qp_.attributes().path,
                                     .headers = headers,
                                     .payload = {&payload, 1},
                                     .payload_bytes = wqe.length,
                                     .acknowledgement = acknowledgement ? &*acknowledgement : nullptr});
}

SendStatus Requester::send_together(const Together& messages,
                                    std::optional<Acknowledgement>& acknowledgement) {
  roce::Headers headers = headers_for(Operation::kSendOnly, next_);
  const uint32_t last = cursor_ + messages.count - 1;
  headers.ack_request = last + 1 == ring().posted() || must_ask(messages.count, messages.bytes, true, last);
  const SendStatus status = qp_.send_out({.path = qp_.attributes().path,
                                          .headers = headers,
                                          .payload = std::span(messages.pieces).first(messages.count),
                                          .payload_bytes = messages.bytes,
                                          .count = messages.count,
                                          .acknowledgement = acknowledgement ? &*acknowledgement : nullptr,
                                          .messages = std::span(messages.lengths).first(messages.count)});
  if (status != SendStatus::kSent) return status;
  acknowledgement.reset();
  for (uint32_t i = 0; i < messages.count; ++i) {
    SendWqe& wqe = ring().at(cursor_ + i);
    wqe.first_psn = wqe.last_psn = next_ + i;
    wqe.executed = false;
  }
  left_simply(messages.count, messages.count, messages.bytes, headers.ack_request);
  return status;
}

// So many requests have left, with so many packets and bytes together.
void Requester::left_simply(uint32_t requests, uint32_t packets, uint32_t bytes, bool asked) {
  const uint32_t cost = bytes + packets * sizes_.charge;
  cursor_ += requests;
  assigned_ = cursor_;
  next_ = next_ + packets;
  next_new_ = highest_ = next_;
  note_question(asked, cost);
  inflight_ += cost;
  one_sided_run_ = 0;
  one_sided_bytes_ = 0;
  qp_.count(kSentPackets, packets);
  qp_.count(kSentBytes, bytes);
}

}  // namespace verbena::transport
