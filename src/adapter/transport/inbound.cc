// SPDX-License-Identifier: Apache-2.0
#include "adapter/transport/inbound.h"

#include <algorithm>
#include <array>

#include "adapter/memory/guarded.h"
#include "adapter/memory/ordered_copy.h"
#include "adapter/memory/window.h"
#include "adapter/transport/send_request.h"

namespace verbena::transport {
namespace {

using roce::NakCode;
using roce::Operation;

bool is_write_operation(Operation operation) {
  return operation >= Operation::kWriteFirst && operation <= Operation::kWriteOnlyImmediate;
}

// Programs poll the last byte of a WRITE, and then rely on all of its data.
bool place_written(std::byte* to, ConstBytes payload, bool ends_message) {
  return ends_message ? memory::copy_in_order_guarded(to, payload) : memory::copy_guarded(to, payload);
}

Reception refused(NakCode code, ibv_wc_status receive_status = IBV_WC_SUCCESS) {
  return {Reception::Result::kRefused, code, receive_status};
}

// If the packet would complete a receive request, that fails with a local access error (IBTA volume 1,
// 11.6.2): "remote access" is a status of send queues. (Linux rxe reports "remote access" here.)
Reception refused_access(QueuePair& qp, const roce::OpcodeInfo& info) {
  const bool has_receive = info.has(roce::kImmediate) && qp.receives().current() != nullptr;
  return refused(NakCode::kRemoteAccess, has_receive ? IBV_WC_LOC_ACCESS_ERR : IBV_WC_SUCCESS);
}

}  // namespace

Reception Inbound::execute(const roce::Packet& packet, LentPayload* lent) {
  const Payload payload{packet.payload, lent};
  return is_write_operation(packet.headers.operation()) ? execute_write(packet, payload)
                                                        : execute_send(packet, payload);
}

// Checks the order of First, Middle, Last and Only within one kind of message (IBTA volume 1, 9.7.4.1.2 to
// .4).
bool Inbound::in_sequence(const roce::OpcodeInfo& info, Message kind) const {
  return info.starts_message ? message_ == Message::kNone : message_ == kind;
}

// All packets but the last are full. A Last is not empty (IBTA volume 1, 9.7.4.1.6), nor is the last packet
// of a super-packet.
bool Inbound::fits_mtu(const roce::Packet& packet, uint32_t bytes) const {
  const roce::OpcodeInfo& info = packet.headers.info();
  if (!info.ends_message) return bytes == size_t{packet.count} * qp_.attributes().path_mtu;
  return fits_mtu_at_end(packet.count, bytes, info.starts_message && packet.count == 1);
}

// The same for packets that end a message.
bool Inbound::fits_mtu_at_end(uint32_t packets, size_t bytes, bool may_be_empty) const {
  const size_t full = size_t{packets} * qp_.attributes().path_mtu;
  return bytes <= full && (may_be_empty || bytes > full - qp_.attributes().path_mtu);
}

// The packet violates the protocol. As with Linux rxe, the receive request that it needs, or that is being
// filled, fails with the status that its sender gets.
Reception Inbound::refuse_malformed(bool takes_receive) {
  Receives& receives = qp_.receives();
  const bool fails_receive = fills_receive() || (takes_receive && receives.tags() == nullptr);
  return refused(NakCode::kInvalidRequest,
                 fails_receive && receives.current() != nullptr ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
}

// The payload does not have the length that the path MTU requires. As with Linux rxe, a missing receive
// request takes precedence.
Reception Inbound::refuse_size(const roce::Packet& packet, uint32_t bytes, bool takes_receive) {
  Receives& receives = qp_.receives();
  if (takes_receive && receives.tags() == nullptr && receives.current() == nullptr)
    return {Reception::Result::kNotReady};
  misfit_ = {Misfit::Kind::kPathMtu, bytes / packet.count, qp_.attributes().path_mtu};
  return refuse_malformed(takes_receive);
}

Reception Inbound::execute_send(const roce::Packet& packet, Payload payload) {
  const roce::OpcodeInfo& info = packet.headers.info();
  if (!in_sequence(info, Message::kSend)) return refuse_malformed(false);
  if (!fits_mtu(packet, payload.bytes())) return refuse_size(packet, payload.bytes(), true);
  if (info.starts_message) {
    tagged_ = {};
    if (qp_.receives().tags() != nullptr) {
      // The tag is in the payload, which must therefore be here.
      if (payload.lent != nullptr) return {Reception::Result::kNotFetched};
      const Reception begun = begin_tagged(packet);
      if (begun.result != Reception::Result::kTaken) return begun;
    }
  }
  const queues::RecvWqe* wqe = qp_.receives().current();
  if (wqe == nullptr) return {Reception::Result::kNotReady};
  if (info.starts_message) {
    message_ = Message::kSend;
    received_ = 0;
    if (tagged_.is_tagged()) payload.here = payload.here.subspan(kTagHeaderBytes);
  }
  if (received_ + payload.bytes() > kMaxMessageBytes) {
    return refused(NakCode::kInvalidRequest, IBV_WC_LOC_LEN_ERR);
  }
  const ScatterResult result =
      payload.lent == nullptr ? scatter(qp_.keys(), qp_.receives().pd(), wqe->sges(), received_, payload.here)
                              : fetch_behind(*wqe, *payload.lent);
  switch (result) {
    case ScatterResult::kDone:
      break;
    case ScatterResult::kNotFetched:
      if (info.starts_message) message_ = Message::kNone;
      return {Reception::Result::kNotFetched};
    case ScatterResult::kTooLong:  // IBTA volume 1, 9.7.5.2.8: the sender gets "invalid request", the
                                   // receiver "local length"
      misfit_ = {info.ends_message ? Misfit::Kind::kReceiveBuffer : Misfit::Kind::kPartOfMessage,
                 uint64_t{received_} + payload.bytes(), total_length(wqe->sges())};
      return refused(NakCode::kInvalidRequest, IBV_WC_LOC_LEN_ERR);
    case ScatterResult::kProtection:
      return refused(NakCode::kRemoteOperational, IBV_WC_LOC_PROT_ERR);
  }
  received_ += payload.bytes();
  return info.ends_message ? end_send(packet.headers) : Reception{Reception::Result::kTaken};
}

ScatterResult Inbound::fetch_behind(const queues::RecvWqe& wqe, LentPayload& lent) {
  const memory::PdId pd = qp_.receives().pd();
  const uint32_t bytes = lent.bytes();
  if (uint64_t{received_} + bytes > total_length(wqe.sges())) return ScatterResult::kTooLong;
  Pieces pieces;
  if (!gather(qp_.keys(), pd, wqe.sges(), received_, bytes, IBV_ACCESS_LOCAL_WRITE, pieces))
    return ScatterResult::kProtection;
  return fetch(lent, pieces.get()) ? ScatterResult::kDone : ScatterResult::kNotFetched;
}

bool Inbound::fetch(LentPayload& lent, std::span<const ConstBytes> to) const {
  const QpAttributes& attributes = qp_.attributes();
  return lent.fetch(
      {.from = attributes.destination, .to = qp_.config().qpn, .first_psn = attributes.receive_psn}, to);
}

// Each message fits a packet: its 8-bit length is below every path MTU.
uint32_t Inbound::take_messages(ConstBytes payload, std::span<const uint8_t> lengths) {
  Receives& receives = qp_.receives();
  if (in_message() || receives.tags() != nullptr) return 0;
  LocalKeys keys(qp_.keys(), receives.pd(), IBV_ACCESS_LOCAL_WRITE);
  std::array<queues::CompletionQueue::Differing, kMaxJoinedMessages> taken;
  uint32_t count = 0;
  for (const uint8_t length : lengths.first(std::min(lengths.size(), taken.size()))) {
    const queues::RecvWqe* const wqe = receives.current();
    if (wqe == nullptr) break;
    const ConstBytes message = payload.first(length);
    const std::span<const ibv_sge> list = wqe->sges();
    std::byte* const to = !list.empty() && length <= list[0].length ? keys.at(list[0], length) : nullptr;
    if (to != nullptr ? !memory::copy_guarded(to, message)
                      : scatter(qp_.keys(), receives.pd(), list, 0, message) != ScatterResult::kDone)
      break;
    taken[count++] = {wqe->wr_id, length};
    receives.finish();
    payload = payload.subspan(length);
  }
  if (count > 0) qp_.complete_plain_receives(std::span(taken).first(count));
  return count;
}

bool Inbound::place_whole(ConstBytes payload, uint32_t packets) {
  Receives& receives = qp_.receives();
  if (in_message() || receives.tags() != nullptr || !fits_mtu_at_end(packets, payload.size(), packets == 1))
    return false;
  const queues::RecvWqe* const wqe = receives.current();
  if (wqe == nullptr) return false;
  return scatter(qp_.keys(), receives.pd(), wqe->sges(), 0, payload) == ScatterResult::kDone;
}

Reception Inbound::end_send(const roce::Headers& headers) {
  if (!invalidate_named(headers)) return {Reception::Result::kKeyStays};
  if (tagged_.is_tagged()) {
    message_ = Message::kNone;
    const uint8_t match = headers.info().starts_message ? IBV_WC_TM_MATCH : 0;
    qp_.complete_match(tagged_, IBV_WC_SUCCESS, match | IBV_WC_TM_DATA_VALID, received_);
  } else {
    complete_receive(headers, receive_opcode(), received_);
  }
  return {Reception::Result::kEnded};
}

// Finds the buffer for a message that begins. kTaken: continue as with any message.
Reception Inbound::begin_tagged(const roce::Packet& packet) {
  Receives& receives = qp_.receives();
  tagged_ = read_tagged_message(packet.payload, packet.headers.info().ends_message);
  // A rendezvous may have to be refused for now, and must not take a buffer then.
  const bool rendezvous = tagged_.kind == TaggedMessage::Kind::kRendezvous;
  const bool matched = rendezvous            ? receives.tags()->find(tagged_.tag) != nullptr
                       : tagged_.is_tagged() ? receives.take_tagged(tagged_.tag)
                                             : false;
  if (!matched) {
    if (receives.current() == nullptr) return {Reception::Result::kNotReady};
    if (tagged_.is_tagged()) tagged_.kind = TaggedMessage::Kind::kUnexpected;
    if (tagged_.kind == TaggedMessage::Kind::kUnexpected) receives.tags()->count_unexpected();
    return {Reception::Result::kTaken};
  }
  if (rendezvous) return begin_rendezvous(packet);
  // A match completes at once, and the data when it is complete (in one completion, if both come together).
  if (!packet.headers.info().ends_message) qp_.announce_match(tagged_);
  return {Reception::Result::kTaken};
}

Reception Inbound::begin_rendezvous(const roce::Packet& packet) {
  Receives& receives = qp_.receives();
  if (!has_room_for_rendezvous(qp_)) return {Reception::Result::kNotReady};
  if (!invalidate_named(packet.headers)) return refused(NakCode::kRemoteAccess);
  receives.take_tagged(tagged_.tag);
  const queues::RecvWqe& buffer = *receives.current();
  if (total_length(buffer.sges()) < tagged_.length) {
    // Matched, but software must fetch the data: the buffer gets the headers, as far as they fit.
    scatter(qp_.keys(), receives.pd(), buffer.sges(), 0,
            packet.payload.first(kTagHeaderBytes + kRendezvousHeaderBytes));
    qp_.complete_match(tagged_, IBV_WC_TM_RNDV_INCOMPLETE, IBV_WC_TM_MATCH, 0);
    return {Reception::Result::kEnded};
  }
  fetch_rendezvous(qp_, tagged_, buffer, packet.payload);
  qp_.complete_match(tagged_, IBV_WC_SUCCESS, IBV_WC_TM_MATCH, 0);
  return {Reception::Result::kEnded};
}

ibv_wc_opcode Inbound::receive_opcode() const {
  if (tagged_.kind == TaggedMessage::Kind::kPlain) return IBV_WC_RECV;
  return tagged_.kind == TaggedMessage::Kind::kUntagged ? IBV_WC_TM_NO_TAG : IBV_WC_TM_RECV;
}

// Must come before the receiver learns of the message: it relies on the key being invalid (IBTA volume 1,
// 9.4.1.1.3). Waits for no other process that may access the window directly (KeyTable::users()): the window
// belongs to this QP, and its peer finished all its accesses before it sent this message.
bool Inbound::invalidate_named(const roce::Headers& headers) const {
  if (!headers.info().has(roce::kIeth)) return true;
  const RemoteUser user = qp_.remote_user();
  return memory::invalidate_window(*qp_.config().keys, headers.invalidate_rkey, user.pd, user.qpn.value());
}

std::byte* Inbound::writable(uint32_t rkey, uint64_t address, uint32_t bytes) const {
  return remote_memory(qp_.keys(), qp_.remote_user(), rkey, address, bytes, IBV_ACCESS_REMOTE_WRITE);
}

Reception Inbound::execute_write(const roce::Packet& packet, const Payload& payload) {
  const roce::Headers& headers = packet.headers;
  const roce::OpcodeInfo& info = headers.info();
  const uint32_t bytes = payload.bytes();
  if (!in_sequence(info, Message::kWrite)) return refuse_malformed(false);
  if (!qp_.may(IBV_ACCESS_REMOTE_WRITE)) return refused(NakCode::kInvalidRequest);
  if (!fits_mtu(packet, bytes)) return refuse_size(packet, bytes, info.has(roce::kImmediate));
  uint32_t received = received_;
  std::byte* to = nullptr;
  if (info.starts_message) {
    if (headers.dma_length > kMaxMessageBytes) return refused(NakCode::kInvalidRequest);
    // The whole range must be allowed. Keys of empty messages are not checked (IBTA volume 1, 9.7.4.1.5).
    if (headers.dma_length > 0) {
      to = writable(headers.rkey, headers.address, headers.dma_length);
      if (to == nullptr) return refused_access(qp_, info);
    }
    write_address_ = headers.address;
    write_rkey_ = headers.rkey;
    write_length_ = headers.dma_length;
    received = 0;
  }
  const uint32_t left = write_length_ - received;
  if (info.ends_message ? bytes != left : bytes >= left) return refused(NakCode::kInvalidRequest);
  const bool takes_receive = info.has(roce::kImmediate);
  if (takes_receive && qp_.receives().current() == nullptr) return {Reception::Result::kNotReady};
  if (bytes > 0) {
    if (!info.starts_message) to = writable(write_rkey_, write_address_ + received, bytes);
    if (to == nullptr) return refused_access(qp_, info);
    if (payload.lent != nullptr) {
      const ConstBytes piece(to, bytes);
      if (!fetch(*payload.lent, {&piece, 1})) return {Reception::Result::kNotFetched};
    } else if (!place_written(to, payload.here, info.ends_message)) {
      return refused_access(qp_, info);
    }
  }
  message_ = info.ends_message ? Message::kNone : Message::kWrite;
  received_ = received + bytes;
  if (!info.ends_message) return {Reception::Result::kTaken};
  if (takes_receive) complete_receive(headers, IBV_WC_RECV_RDMA_WITH_IMM, write_length_);
  return {Reception::Result::kEnded};
}

void Inbound::complete_receive(const roce::Headers& headers, ibv_wc_opcode opcode, uint32_t bytes) {
  ibv_wc wc{};
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = opcode;
  wc.byte_len = bytes;
  wc.src_qp = qp_.attributes().destination.value();
  if (headers.info().has(roce::kImmediate)) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = byteswap(headers.immediate);
  }
  if (headers.info().has(roce::kIeth)) {
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = headers.invalidate_rkey;
  }
  message_ = Message::kNone;
  qp_.complete_recv(wc, headers.solicited);
}

void Inbound::fail_receive(ibv_wc_status status) {
  message_ = Message::kNone;
  ibv_wc wc{};
  wc.status = status;
  wc.opcode = IBV_WC_RECV;
  qp_.complete_recv(wc, true, misfit_);
}

}  // namespace verbena::transport
