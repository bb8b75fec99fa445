// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "adapter/transport/gather.h"
#include "adapter/transport/queue_pair.h"
#include "adapter/transport/tag_matching.h"
#include "wire/roce/aeth.h"
#include "wire/roce/packet.h"

namespace verbena::transport {

// Result of executing one packet of an incoming message.
struct Reception {
  enum class Result : uint8_t {
    kTaken,       // executed; its message continues
    kEnded,       // executed; its message is complete
    kNotReady,    // no receive request is posted; nothing has changed
    kNotFetched,  // the packet's rendezvous payload could not be fetched: it must be sent another way
    kRefused,     // refused with `code`
    // The message was received completely, but the key that it names must not be invalidated: the receive
    // request must fail with IBV_WC_REM_INV_REQ_ERR.
    kKeyStays,
  };
  Result result;
  roce::NakCode code = roce::NakCode::kInvalidRequest;
  // Status with which the receive request must fail; IBV_WC_SUCCESS if it must not fail.
  ibv_wc_status receive_status = IBV_WC_SUCCESS;

  bool executed() const { return result <= Result::kEnded; }
};

// Executes incoming SENDs and RDMA WRITEs packet by packet: checks their order within a message, places the
// payload and completes receive requests. The service (RC or UC) checks PSNs, and decides how to react when
// this class refuses a packet.
class Inbound {
 public:
  explicit Inbound(QueuePair& qp) : qp_(qp) {}

  // Whether the operation is a SEND or an RDMA WRITE, in any form.
  static bool takes(roce::Operation operation) {
    return operation <= roce::Operation::kWriteOnlyImmediate ||
           operation == roce::Operation::kSendLastInvalidate ||
           operation == roce::Operation::kSendOnlyInvalidate;
  }

  // Executes the next packet. `lent` gives the payload if it is still in the sender's memory (rendezvous).
  // `lent` is null if `packet` has its payload, as the last packet of a message always does. REQUIRES:
  // takes(packet's operation)
  Reception execute(const roce::Packet& packet, LentPayload* lent = nullptr);

  // Executes the messages of a batch (IncomingPacket::messages), and returns how many it has executed. Stops
  // at the first message that cannot be placed, for example because no receive request is posted. The caller
  // passes the other messages to execute() one by one.
  uint32_t take_messages(ConstBytes payload, std::span<const uint8_t> lengths);

  // Fast path for a PlainSend of `packets` packets: places the payload in the next receive request. Returns
  // false if the caller must use execute() instead. After true, the caller must call complete_whole(), which
  // completes the receive request.
  bool place_whole(ConstBytes payload, uint32_t packets);
  void complete_whole(uint32_t bytes, bool solicited) { qp_.complete_plain_receive(bytes, solicited); }

  // Whether a message has begun and is not complete.
  bool in_message() const { return message_ != Message::kNone; }
  // Whether a SEND is filling a receive request. Returns false if the receive queue is for tag matching, or
  // if the shared queue of the request has been destroyed.
  bool fills_receive() const {
    return message_ == Message::kSend && qp_.receives().tags() == nullptr &&
           qp_.receives().current() != nullptr;
  }
  // Ends the current message early. Its receive request, if any, is used for the next message.
  void abandon() {
    message_ = Message::kNone;
    misfit_ = {};
  }
  // Completes the current receive request with `status`, the error that execute() returned as
  // Reception::receive_status.
  void fail_receive(ibv_wc_status status);
  // The two sizes that do not match, if execute() has just refused a packet for its size; else
  // Misfit::Kind::kNone.
  const Misfit& misfit() const { return misfit_; }

 private:
  enum class Message : uint8_t { kNone, kSend, kWrite };

  // Payload of a packet: in `here`, or still in the sender's memory (rendezvous) if `lent` is not null.
  struct Payload {
    ConstBytes here;
    LentPayload* lent = nullptr;
    uint32_t bytes() const { return lent != nullptr ? lent->bytes() : static_cast<uint32_t>(here.size()); }
  };

  Reception execute_send(const roce::Packet& packet, Payload payload);
  // Fetches the payload into the current receive request, after the bytes received so far.
  ScatterResult fetch_behind(const queues::RecvWqe& wqe, LentPayload& lent);
  bool fetch(LentPayload& lent, std::span<const ConstBytes> to) const;
  // All packets of a SEND are executed: completes the receive request.
  Reception end_send(const roce::Headers& headers);
  Reception begin_tagged(const roce::Packet& packet);
  Reception begin_rendezvous(const roce::Packet& packet);
  Reception execute_write(const roce::Packet& packet, const Payload& payload);
  Reception refuse_malformed(bool takes_receive);
  Reception refuse_size(const roce::Packet& packet, uint32_t bytes, bool takes_receive);
  bool in_sequence(const roce::OpcodeInfo& info, Message kind) const;
  bool fits_mtu(const roce::Packet& packet, uint32_t payload_bytes) const;
  bool fits_mtu_at_end(uint32_t packets, size_t bytes, bool may_be_empty) const;
  // Returns the memory of the range; nullptr if the peer may not write it.
  std::byte* writable(uint32_t rkey, uint64_t address, uint32_t bytes) const;
  // Invalidates the key that a SEND with Invalidate names. Returns false if that is not allowed.
  bool invalidate_named(const roce::Headers& headers) const;
  void complete_receive(const roce::Headers& headers, ibv_wc_opcode opcode, uint32_t bytes);
  ibv_wc_opcode receive_opcode() const;

  QueuePair& qp_;
  Message message_ = Message::kNone;
  uint32_t received_ = 0;  // bytes of the current message
  TaggedMessage tagged_;
  uint64_t write_address_ = 0;
  uint32_t write_rkey_ = 0;
  uint32_t write_length_ = 0;
  Misfit misfit_;
};

}  // namespace verbena::transport
