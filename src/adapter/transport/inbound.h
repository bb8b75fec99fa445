// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "adapter/transport/gather.h"
#include "adapter/transport/misfit.h"
#include "adapter/transport/queue_pair.h"
#include "adapter/transport/tag_matching.h"
#include "wire/roce/aeth.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// What became of a packet of an incoming message.
struct Reception {
  enum class Result : uint8_t {
    kTaken,       // executed; the message goes on
    kEnded,       // executed, and its message is whole
    kNotReady,    // there is no receive request; nothing has changed
    kNotFetched,  // its payload could not be fetched; nothing has changed
    kRefused,     // for the reason in `code`
    // Executed and whole, but the key it names must not be invalidated: the receive request is to fail with
    // IBV_WC_REM_INV_REQ_ERR.
    kKeyStays,
  };
  Result result;
  roce::NakCode code = roce::NakCode::kInvalidRequest;
  // Refused because of the receive request, which is to fail with this; IBV_WC_SUCCESS if it is not at fault.
  ibv_wc_status receive_status = IBV_WC_SUCCESS;

  bool executed() const { return result <= Result::kEnded; }
};

// Receives messages, SEND and RDMA WRITE, packet after packet: checks that they follow each other, puts the
// payload where it belongs and completes receive requests. What refusal means, and PSNs, are the service's
// business.
class Inbound {
 public:
  explicit Inbound(QueuePair& qp) : qp_(qp) {}

  static bool takes(roce::Operation operation) {
    return operation <= roce::Operation::kWriteOnlyImmediate ||
           operation == roce::Operation::kSendLastInvalidate ||
           operation == roce::Operation::kSendOnlyInvalidate;
  }

  // The next packet. `lent`: its payload, if it came without; not of one that ends a message.
  // REQUIRES: takes(packet's operation)
  Reception execute(const roce::Packet& packet, LentPayload* lent = nullptr);

  // Messages that came as one (IncomingPacket::messages). Takes those that nothing is in the way of, and says
  // how many; the rest are to be executed one by one.
  uint32_t take_messages(ConstBytes payload, std::span<const uint8_t> lengths);

  // A PlainSend that nothing is in the way of goes where it belongs. False: something is, and
  // execute() is to be called. True: complete_whole() is, at once.
  bool place_whole(ConstBytes payload, uint32_t packets);
  void complete_whole(uint32_t bytes, bool solicited) { qp_.complete_plain_receive(bytes, solicited); }

  bool in_message() const { return message_ != Message::kNone; }
  // A receive request is being filled by a SEND. (Tagged buffers complete otherwise, and a shared queue may
  // have gone away with its request.)
  bool fills_receive() const {
    return message_ == Message::kSend && qp_.receives().tags() == nullptr &&
           qp_.receives().current() != nullptr;
  }
  // The message is over before its end. Its receive request, if it has one, waits for the next.
  void abandon() {
    message_ = Message::kNone;
    misfit_ = {};
  }
  // Completes the receive request at hand with the error that execute() named.
  void fail_receive(ibv_wc_status status);
  // Why execute() has just refused a packet, if that was for its size.
  const Misfit& misfit() const { return misfit_; }

 private:
  enum class Message : uint8_t { kNone, kSend, kWrite };

  // Of a packet; it may be its sender still who has it.
  struct Payload {
    ConstBytes here;
    LentPayload* lent = nullptr;
    uint32_t bytes() const { return lent != nullptr ? lent->bytes() : static_cast<uint32_t>(here.size()); }
  };

  Reception execute_send(const roce::Packet& packet, Payload payload);
  // Behind what the receive request at hand has got so far.
  ScatterResult fetch_behind(const queues::RecvWqe& wqe, LentPayload& lent);
  bool fetch(LentPayload& lent, std::span<const ConstBytes> to) const;
  // All its packets are executed: completes the receive request.
  Reception end_send(const roce::Headers& headers);
  Reception begin_tagged(const roce::Packet& packet);
  Reception begin_rendezvous(const roce::Packet& packet);
  Reception execute_write(const roce::Packet& packet, const Payload& payload);
  Reception refuse_malformed(bool takes_receive);
  Reception refuse_size(const roce::Packet& packet, uint32_t bytes, bool takes_receive);
  bool in_sequence(const roce::OpcodeInfo& info, Message kind) const;
  bool fits_mtu(const roce::Packet& packet, uint32_t payload_bytes) const;
  bool fits_mtu_at_end(uint32_t packets, size_t bytes, bool may_be_empty) const;
  // Where the peer may write; nullptr where it may not.
  std::byte* writable(uint32_t rkey, uint64_t address, uint32_t bytes) const;
  // The key that a message names is invalid from now on. False: it must not be invalidated.
  bool invalidate_named(const roce::Headers& headers) const;
  void complete_receive(const roce::Headers& headers, ibv_wc_opcode opcode, uint32_t bytes);
  ibv_wc_opcode receive_opcode() const;

  QueuePair& qp_;
  Message message_ = Message::kNone;
  uint32_t received_ = 0;  // bytes of it
  TaggedMessage tagged_;
  uint64_t write_address_ = 0;
  uint32_t write_rkey_ = 0;
  uint32_t write_length_ = 0;
  Misfit misfit_;
};

}  // namespace verbena::transport
