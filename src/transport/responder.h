// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "roce/aeth.h"
#include "transport/queue_pair.h"

namespace verbena::transport {

// The receiving half of an RC QP (IBTA volume 1, 9.7 and 9.7.5): executes requests in order, acknowledges,
// answers READs and atomics, and repeats the answers to duplicates from what it has saved.
//
// What it has to send is of two kinds: urgent (READ responses, atomic acknowledgements, NAKs), in PSN order,
// and one coalesced acknowledgement that covers everything up to the expected PSN and follows all of it.
class Responder {
 public:
  explicit Responder(QueuePair& qp) : qp_(qp) {}

  // Enters RTR: the expected PSN from the attributes, room for max_dest_rd_atomic answers.
  void start();
  // ERR, RESET: takes no more requests. In ERR what has been executed is still acknowledged: the peer must
  // not learn from its retry counter what an adapter would have told it at once.
  void halt(ibv_qp_state to);

  void on_request(const roce::Packet& packet);

  TransmitResult transmit_urgent(PacketSink& sink, uint32_t& budget);
  // False: the sink is full.
  bool transmit_acknowledgement(PacketSink& sink);

  bool has_urgent() const { return reply_count_ > 0 || nak_.has_value(); }
  bool has_acknowledgement() const { return acknowledgement_due_; }

  roce::Psn expected_psn() const { return expected_; }

 private:
  // A READ or atomic that was executed; kept to answer its duplicates (IBTA volume 1, 9.7.5.1.3).
  struct Resource {
    bool valid = false;
    bool atomic = false;
    roce::Psn first;
    roce::Psn last;
    uint64_t address = 0;
    uint32_t rkey = 0;
    uint32_t length = 0;
    uint32_t msn = 0;
    uint64_t original = 0;  // of an atomic
  };
  // An answer being sent: a resource's packets from `next` to `last`, the first of them at `first`.
  struct Reply {
    Resource resource;
    roce::Psn next;
    bool repeated = false;  // it was given in full before
  };
  struct Nak {
    uint8_t syndrome;
    roce::Psn psn;
  };
  enum class Message : uint8_t { kNone, kSend, kWrite };

  // Each returns true when the packet was executed and the expected PSN may move on.
  bool execute_send(const roce::Packet& packet);
  bool execute_write(const roce::Packet& packet);
  bool execute_read(const roce::Packet& packet);
  bool execute_atomic(const roce::Packet& packet);

  bool in_sequence(const roce::OpcodeInfo& info, Message kind) const;
  bool payload_fits_mtu(const roce::Packet& packet) const;
  void complete_receive(const roce::Headers& headers, ibv_wc_opcode opcode, uint32_t bytes);
  void repeat(const roce::Packet& packet);
  void save(const Resource& resource);
  const Resource* saved(roce::Psn psn, bool atomic) const;
  Reply& reply_at(uint32_t place) { return replies_[(first_reply_ + place) % replies_.size()]; }
  bool has_room_for_reply();
  bool queue_reply(const Resource& resource, bool repeated);
  void erase_reply(uint32_t place);

  bool refuse(roce::NakCode code);  // NAK and ERR; returns false
  bool refuse_receive(roce::NakCode code,
                      ibv_wc_status status);  // the same, the receive request fails with it
  void give_up(const Nak& nak, std::optional<ibv_event_type> event);
  bool not_ready();  // RNR NAK; returns false

  SendStatus send_read_response(Reply& reply, PacketSink& sink);
  SendStatus send_atomic_acknowledge(const Reply& reply, PacketSink& sink);
  SendStatus send_acknowledge(uint8_t syndrome, roce::Psn psn, PacketSink& sink);
  roce::Headers headers_for(roce::Operation operation, roce::Psn psn) const;

  bool may(memory::Access access) const { return (qp_.attributes().access & access) != 0; }
  bool takes_reads() const { return qp_.attributes().max_dest_rd_atomic > 0; }
  uint32_t mtu() const { return qp_.attributes().path_mtu; }

  QueuePair& qp_;
  bool running_ = false;
  bool refusing_ = false;
  roce::Psn expected_;
  uint32_t msn_ = 0;
  bool gap_reported_ = false;  // a NAK for expected_ has gone out; nothing more is said until it comes

  // The message being received.
  Message message_ = Message::kNone;
  uint32_t received_ = 0;  // bytes of it
  uint64_t write_address_ = 0;
  uint32_t write_rkey_ = 0;
  uint32_t write_length_ = 0;

  bool acknowledgement_due_ = false;
  std::optional<Nak> nak_;

  std::vector<Resource> resources_;  // a ring; the next to be replaced is at next_resource_
  uint32_t next_resource_ = 0;
  std::vector<Reply> replies_;  // a ring, in PSN order: reply_count_ from first_reply_
  uint32_t first_reply_ = 0;
  uint32_t reply_count_ = 0;
};

}  // namespace verbena::transport
