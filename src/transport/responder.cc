// SPDX-License-Identifier: Apache-2.0
#include "transport/responder.h"

#include <algorithm>

#include "memory/atomics.h"
#include "memory/guarded.h"
#include "roce/aeth.h"
#include "transport/gather.h"

namespace verbena::transport {
namespace {

using roce::NakCode;
using roce::Operation;
using roce::Psn;

// The longest message a port claims to take (max_msg_sz); a READ of more is refused, so that a PSN range
// never comes near half the PSN space.
constexpr uint32_t kMaxMessageBytes = 1u << 30;

bool is_immediate(Operation operation) {
  return operation == Operation::kSendLastImmediate || operation == Operation::kSendOnlyImmediate ||
         operation == Operation::kWriteLastImmediate || operation == Operation::kWriteOnlyImmediate;
}

}  // namespace

void Responder::start() {
  const QpAttributes& attributes = qp_.attributes();
  running_ = true;
  expected_ = attributes.receive_psn;
  msn_ = 0;
  gap_reported_ = false;
  message_ = Message::kNone;
  received_ = 0;
  acknowledgement_due_ = false;
  nak_.reset();
  resources_.assign(std::max<size_t>(attributes.max_dest_rd_atomic, 1), Resource{});
  replies_.assign(resources_.size(), Reply{});
  next_resource_ = first_reply_ = reply_count_ = 0;
}

void Responder::halt(ibv_qp_state to) {
  running_ = false;
  nak_.reset();
  if (refusing_) return;
  // An acknowledgement must not overtake answers that will not be given.
  if (to == IBV_QPS_RESET || reply_count_ > 0) acknowledgement_due_ = false;
  reply_count_ = 0;
}

// ---- requests

void Responder::on_request(const roce::Packet& packet) {
  if (!running_) return;
  const int32_t ahead = packet.headers.psn - expected_;
  if (ahead > 0) {
    qp_.count(kOutOfSequence);
    if (!gap_reported_) {
      gap_reported_ = true;
      nak_ = Nak{roce::nak_syndrome(NakCode::kSequenceError), expected_};
      qp_.count(kSequenceNaksSent);
    }
    return;
  }
  if (ahead < 0) {
    qp_.count(kDuplicateRequests);
    repeat(packet);
    return;
  }

  // The expected one: whatever was said of its absence is settled.
  gap_reported_ = false;
  nak_.reset();
  const Operation operation = packet.headers.operation();
  bool done = false;
  if (operation <= Operation::kSendOnlyImmediate) {
    done = execute_send(packet);
  } else if (operation <= Operation::kWriteOnlyImmediate) {
    done = execute_write(packet);
  } else if (operation == Operation::kReadRequest) {
    done = execute_read(packet);
  } else if (operation == Operation::kCompareSwap || operation == Operation::kFetchAdd) {
    done = execute_atomic(packet);
  } else {
    refuse(NakCode::kInvalidRequest);
  }
  if (done && packet.headers.ack_request) acknowledgement_due_ = true;
}

// First, Middle, Last and Only in their order, within one kind of message (IBTA volume 1, 9.7.4.1.2 to .4).
bool Responder::in_sequence(const roce::OpcodeInfo& info, Message kind) const {
  return info.starts_message ? message_ == Message::kNone : message_ == kind;
}

// All packets but the last are full; a Last is not empty (IBTA volume 1, 9.7.4.1.6).
bool Responder::payload_fits_mtu(const roce::Packet& packet) const {
  const roce::OpcodeInfo& info = packet.headers.info();
  const size_t bytes = packet.payload.size();
  if (!info.ends_message) return bytes == mtu();
  return bytes <= mtu() && (info.starts_message || bytes > 0);
}

bool Responder::execute_send(const roce::Packet& packet) {
  const roce::OpcodeInfo& info = packet.headers.info();
  if (!in_sequence(info, Message::kSend) || !payload_fits_mtu(packet))
    return refuse(NakCode::kInvalidRequest);
  queues::RecvQueue& queue = qp_.recv_queue();
  if (queue.empty()) return not_ready();
  if (info.starts_message) {
    message_ = Message::kSend;
    received_ = 0;
  }
  if (received_ + packet.payload.size() > kMaxMessageBytes) {
    return refuse_receive(NakCode::kInvalidRequest, IBV_WC_LOC_LEN_ERR);
  }
  // The request stays in the ring until its message is whole: a flush finds it there.
  const queues::RecvWqe& wqe = queue.at(queue.consumed());
  switch (scatter(*qp_.config().keys, qp_.config().pd, wqe.sges(), received_, packet.payload)) {
    case ScatterResult::kDone:
      break;
    case ScatterResult::kTooLong:  // IBTA volume 1, 9.7.5.2.8: the sender gets "invalid request", the
                                   // receiver "local length"
      return refuse_receive(NakCode::kInvalidRequest, IBV_WC_LOC_LEN_ERR);
    case ScatterResult::kProtection:
      return refuse_receive(NakCode::kRemoteOperational, IBV_WC_LOC_PROT_ERR);
  }
  received_ += static_cast<uint32_t>(packet.payload.size());
  ++expected_;
  if (info.ends_message) complete_receive(packet.headers, IBV_WC_RECV, received_);
  return true;
}

bool Responder::execute_write(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  const roce::OpcodeInfo& info = headers.info();
  const auto bytes = static_cast<uint32_t>(packet.payload.size());
  if (!in_sequence(info, Message::kWrite) || !payload_fits_mtu(packet) || !may(IBV_ACCESS_REMOTE_WRITE)) {
    return refuse(NakCode::kInvalidRequest);
  }
  uint32_t received = received_;
  if (info.starts_message) {
    if (headers.dma_length > kMaxMessageBytes) return refuse(NakCode::kInvalidRequest);
    // Keys of empty messages are not looked at (IBTA volume 1, 9.7.4.1.5).
    if (headers.dma_length > 0 &&
        remote_memory(*qp_.config().keys, qp_.config().pd, headers.rkey, headers.address, headers.dma_length,
                      IBV_ACCESS_REMOTE_WRITE) == nullptr) {
      return refuse(NakCode::kRemoteAccess);
    }
    write_address_ = headers.address;
    write_rkey_ = headers.rkey;
    write_length_ = headers.dma_length;
    received = 0;
  }
  const uint32_t left = write_length_ - received;
  if (info.ends_message ? bytes != left : bytes >= left) return refuse(NakCode::kInvalidRequest);
  const bool takes_receive = is_immediate(headers.operation());
  if (takes_receive && qp_.recv_queue().empty()) return not_ready();
  if (bytes > 0) {
    std::byte* to = remote_memory(*qp_.config().keys, qp_.config().pd, write_rkey_, write_address_ + received,
                                  bytes, IBV_ACCESS_REMOTE_WRITE);
    if (to == nullptr || !memory::copy_guarded(to, packet.payload)) return refuse(NakCode::kRemoteAccess);
  }
  message_ = Message::kWrite;
  received_ = received + bytes;
  ++expected_;
  if (!info.ends_message) return true;
  if (takes_receive) {
    complete_receive(headers, IBV_WC_RECV_RDMA_WITH_IMM, write_length_);
  } else {
    message_ = Message::kNone;
    msn_ = (msn_ + 1) & 0xffffff;
  }
  return true;
}

void Responder::complete_receive(const roce::Headers& headers, ibv_wc_opcode opcode, uint32_t bytes) {
  ibv_wc wc{};
  wc.wr_id = qp_.recv_queue().at(qp_.recv_queue().consumed()).wr_id;
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = opcode;
  wc.byte_len = bytes;
  wc.src_qp = qp_.attributes().destination.value();
  if (is_immediate(headers.operation())) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = byteswap(headers.immediate);
  }
  qp_.recv_queue().consume();
  message_ = Message::kNone;
  msn_ = (msn_ + 1) & 0xffffff;
  qp_.complete_recv(wc, headers.solicited);
}

bool Responder::execute_read(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  if (message_ != Message::kNone || !takes_reads() || !may(IBV_ACCESS_REMOTE_READ) ||
      headers.dma_length > kMaxMessageBytes) {
    return refuse(NakCode::kInvalidRequest);
  }
  if (headers.dma_length > 0 &&
      remote_memory(*qp_.config().keys, qp_.config().pd, headers.rkey, headers.address, headers.dma_length,
                    IBV_ACCESS_REMOTE_READ) == nullptr) {
    return refuse(NakCode::kRemoteAccess);
  }
  const uint32_t packets = std::max<uint32_t>(1, (headers.dma_length + mtu() - 1) / mtu());
  msn_ = (msn_ + 1) & 0xffffff;
  Resource resource;
  resource.valid = true;
  resource.first = expected_;
  resource.last = expected_ + (packets - 1);
  resource.address = headers.address;
  resource.rkey = headers.rkey;
  resource.length = headers.dma_length;
  resource.msn = msn_;
  // More at once than max_dest_rd_atomic (IBTA volume 1, 9.7.4.1.8).
  if (!queue_reply(resource, false)) return refuse(NakCode::kInvalidRequest);
  save(resource);
  expected_ = expected_ + packets;
  return false;  // the response acknowledges
}

bool Responder::execute_atomic(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  if (message_ != Message::kNone || !takes_reads() || !may(IBV_ACCESS_REMOTE_ATOMIC) ||
      (headers.address & 7) != 0) {
    return refuse(NakCode::kInvalidRequest);
  }
  if (!has_room_for_reply()) return refuse(NakCode::kInvalidRequest);
  std::byte* at = remote_memory(*qp_.config().keys, qp_.config().pd, headers.rkey, headers.address,
                                sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
  if (at == nullptr) return refuse(NakCode::kRemoteAccess);
  // A region may start anywhere, whatever addresses its peers use: the processor needs alignment here too.
  if ((reinterpret_cast<uintptr_t>(at) & 7) != 0) return refuse(NakCode::kInvalidRequest);
  const std::optional<uint64_t> original =
      headers.operation() == Operation::kCompareSwap
          ? memory::compare_swap_guarded(at, headers.compare, headers.swap_add)
          : memory::fetch_add_guarded(at, headers.swap_add);
  if (!original) return refuse(NakCode::kRemoteAccess);
  msn_ = (msn_ + 1) & 0xffffff;
  Resource resource;
  resource.valid = true;
  resource.atomic = true;
  resource.first = resource.last = expected_;
  resource.msn = msn_;
  resource.original = *original;
  queue_reply(resource, false);
  save(resource);
  ++expected_;
  return false;
}

void Responder::save(const Resource& resource) {
  resources_[next_resource_] = resource;
  next_resource_ = next_resource_ + 1 == resources_.size() ? 0 : next_resource_ + 1;
}

// The newest saved resource with this PSN: PSNs come again after 2^24.
const Responder::Resource* Responder::saved(Psn psn, bool atomic) const {
  const auto count = static_cast<uint32_t>(resources_.size());
  for (uint32_t age = 1; age <= count; ++age) {
    const Resource& r = resources_[(next_resource_ + count - age) % count];
    if (r.valid && r.atomic == atomic && !psn.is_before(r.first) && !psn.is_after(r.last)) return &r;
  }
  return nullptr;
}

// A repeated answer makes room: whoever sends a new request beyond max_dest_rd_atomic has got the old answer,
// and whoever has not will ask again.
bool Responder::has_room_for_reply() {
  if (reply_count_ < replies_.size()) return true;
  for (uint32_t place = 0; place < reply_count_; ++place) {
    if (!reply_at(place).repeated) continue;
    erase_reply(place);
    return true;
  }
  return false;
}

bool Responder::queue_reply(const Resource& resource, bool repeated) {
  if (!has_room_for_reply()) return false;
  uint32_t place = reply_count_++;
  for (; place > 0 && reply_at(place - 1).resource.first.is_after(resource.first); --place) {
    reply_at(place) = reply_at(place - 1);
  }
  reply_at(place) = Reply{resource, resource.first, repeated};
  return true;
}

void Responder::erase_reply(uint32_t place) {
  for (--reply_count_; place < reply_count_; ++place) reply_at(place) = reply_at(place + 1);
}

// A request from the past (IBTA volume 1, 9.7.5.1.2 and .3): SEND and WRITE are acknowledged again, READ and
// atomics answered again from the saved resource; what is not saved any more is dropped.
void Responder::repeat(const roce::Packet& packet) {
  const roce::Headers& headers = packet.headers;
  const Operation operation = headers.operation();
  const bool read = operation == Operation::kReadRequest;
  const bool atomic = operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
  if (!read && !atomic) {
    acknowledgement_due_ = true;
    return;
  }
  const Resource* resource = saved(headers.psn, atomic);
  if (resource == nullptr) return;
  Resource answer = *resource;
  if (read) {
    // It may ask for the rest only, beginning with any packet.
    const uint64_t skipped = uint64_t{static_cast<uint32_t>(headers.psn - resource->first)} * mtu();
    const bool within = skipped <= resource->length && headers.dma_length <= resource->length - skipped &&
                        headers.rkey == resource->rkey && headers.address == resource->address + skipped;
    if (!within) return;
    answer.first = headers.psn;
    answer.last = headers.psn + (std::max<uint32_t>(1, (headers.dma_length + mtu() - 1) / mtu()) - 1);
    answer.address = headers.address;
    answer.length = headers.dma_length;
  }
  for (uint32_t place = 0; place < reply_count_; ++place) {
    Reply& queued = reply_at(place);
    if (queued.resource.last.is_before(answer.first) || answer.last.is_before(queued.resource.first)) {
      continue;
    }
    // It is being answered. What is still to be sent need not be sent twice; what was sent is begun again.
    if (!queued.next.is_before(answer.first)) {
      queued.resource = answer;
      queued.next = answer.first;
    }
    return;
  }
  queue_reply(answer, true);
}

// ---- refusals

bool Responder::refuse(NakCode code) {
  const bool access = code == NakCode::kRemoteAccess;
  const Nak nak{roce::nak_syndrome(code), expected_};
  qp_.count(kErrorNaksSent);
  message_ = Message::kNone;
  give_up(nak, access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
  return false;
}

// To ERR; the answers that come before the refusal still go out, and then the refusal.
void Responder::give_up(const Nak& nak, std::optional<ibv_event_type> event) {
  refusing_ = true;
  qp_.fail(event);
  refusing_ = false;
  nak_ = nak;
}

bool Responder::refuse_receive(NakCode code, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = qp_.recv_queue().at(qp_.recv_queue().consumed()).wr_id;
  wc.status = status;
  wc.opcode = IBV_WC_RECV;
  qp_.recv_queue().consume();
  qp_.complete_recv(wc, true);
  const Nak nak{roce::nak_syndrome(code), expected_};
  qp_.count(kErrorNaksSent);
  give_up(nak, std::nullopt);
  return false;
}

bool Responder::not_ready() {
  qp_.count(kRnrNaksSent);
  gap_reported_ = true;  // what follows is out of sequence now, and need not be told
  nak_ = Nak{roce::rnr_syndrome(qp_.attributes().min_rnr_timer), expected_};
  return false;
}

// ---- transmission

roce::Headers Responder::headers_for(Operation operation, Psn psn) const {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, operation);
  headers.destination = qp_.attributes().destination;
  headers.psn = psn;
  return headers;
}

TransmitResult Responder::transmit_urgent(PacketSink& sink, uint32_t& budget) {
  while (reply_count_ > 0) {
    if (budget == 0) return TransmitResult::kMore;
    Reply& reply = replies_[first_reply_];
    const SendStatus status =
        reply.resource.atomic ? send_atomic_acknowledge(reply, sink) : send_read_response(reply, sink);
    if (status == SendStatus::kBusy) return TransmitResult::kBusy;
    if (status == SendStatus::kFault) {  // the region went away after the request was taken
      const Nak nak{roce::nak_syndrome(NakCode::kRemoteAccess), reply.next};
      reply_count_ = 0;
      qp_.count(kErrorNaksSent);
      give_up(nak, IBV_EVENT_QP_ACCESS_ERR);
      break;
    }
    --budget;
    qp_.count(kSentPackets);
    if (reply.next == reply.resource.last) {
      first_reply_ = first_reply_ + 1 == replies_.size() ? 0 : first_reply_ + 1;
      --reply_count_;
    } else {
      ++reply.next;
    }
  }
  if (nak_) {
    if (budget == 0) return TransmitResult::kMore;
    if (send_acknowledge(nak_->syndrome, nak_->psn, sink) == SendStatus::kBusy) return TransmitResult::kBusy;
    --budget;
    nak_.reset();
    acknowledgement_due_ = false;  // a NAK acknowledges everything before it
  }
  return TransmitResult::kIdle;
}

bool Responder::transmit_acknowledgement(PacketSink& sink) {
  if (!acknowledgement_due_) return true;
  if (send_acknowledge(roce::ack_syndrome(), expected_ - 1, sink) == SendStatus::kBusy) return false;
  acknowledgement_due_ = false;
  return true;
}

SendStatus Responder::send_read_response(Reply& reply, PacketSink& sink) {
  const Resource& r = reply.resource;
  const bool first = reply.next == r.first;
  const bool last = reply.next == r.last;
  const uint32_t offset = static_cast<uint32_t>(reply.next - r.first) * mtu();
  const uint32_t bytes = std::min(mtu(), r.length - offset);
  Pieces pieces;
  if (bytes > 0) {
    const std::byte* at = remote_memory(*qp_.config().keys, qp_.config().pd, r.rkey, r.address + offset,
                                        bytes, IBV_ACCESS_REMOTE_READ);
    if (at == nullptr) return SendStatus::kFault;
    pieces.add({at, bytes});
  }
  const Operation operation = first ? (last ? Operation::kReadResponseOnly : Operation::kReadResponseFirst)
                                    : (last ? Operation::kReadResponseLast : Operation::kReadResponseMiddle);
  roce::Headers headers = headers_for(operation, reply.next);
  headers.pad = roce::padding_of(bytes);
  headers.syndrome = roce::ack_syndrome();
  headers.msn = r.msn;
  const SendStatus status = sink.send({qp_.attributes().path, headers, pieces.get(), bytes});
  if (status == SendStatus::kSent) qp_.count(kSentBytes, bytes);
  return status;
}

SendStatus Responder::send_atomic_acknowledge(const Reply& reply, PacketSink& sink) {
  roce::Headers headers = headers_for(Operation::kAtomicAcknowledge, reply.resource.first);
  headers.syndrome = roce::ack_syndrome();
  headers.msn = reply.resource.msn;
  headers.atomic_original = reply.resource.original;
  return sink.send({qp_.attributes().path, headers, {}, 0});
}

SendStatus Responder::send_acknowledge(uint8_t syndrome, Psn psn, PacketSink& sink) {
  roce::Headers headers = headers_for(Operation::kAcknowledge, psn);
  headers.syndrome = syndrome;
  headers.msn = msn_;
  const SendStatus status = sink.send({qp_.attributes().path, headers, {}, 0});
  if (status == SendStatus::kSent) qp_.count(kSentPackets);
  return status;
}

}  // namespace verbena::transport
