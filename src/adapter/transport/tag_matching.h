// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/transport/queue_pair.h"
#include "base/bytes.h"

namespace verbena::transport {

// Tag matching (rdma-core's Documentation/tag_matching.md): a SEND to a shared receive queue of that kind
// begins with a header (struct ibv_tmh), by which it finds its buffer. A rendezvous message says instead
// where the data can be read (struct ibv_rvh): the receiver fetches it and then tells the sender that its
// buffer is free.

// The bytes of the two headers.
inline constexpr uint32_t kTagHeaderBytes = 16;
inline constexpr uint32_t kRendezvousHeaderBytes = 16;
// The longest rendezvous message that is handled without software (ibv_tm_caps::max_rndv_hdr_size).
inline constexpr uint32_t kMaxRendezvousMessage = 128;

// What a message says of itself.
struct TaggedMessage {
  enum class Kind : uint8_t {
    kPlain,       // its queue is not for tag matching
    kUntagged,    // delivered as it is
    kUnexpected,  // tagged, and no buffer is for it: delivered as it is, and counted
    kEager,       // the data follows the header
    kRendezvous,
  };
  Kind kind = Kind::kPlain;
  uint64_t tag = 0;
  uint32_t application = 0;  // opaque, from the sender's software to the receiver's
  // Rendezvous: where the data is
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;

  // It asks for a buffer by tag; once its first packet has been taken: it has one.
  bool is_tagged() const { return kind == Kind::kEager || kind == Kind::kRendezvous; }
};

// Reads the headers of a message's first packet. `whole`: it is also the last.
TaggedMessage read_tagged_message(ConstBytes payload, bool whole);

// Whether the QP's send queue can take what fetch_rendezvous() puts there.
bool has_room_for_rendezvous(QueuePair& qp);

// Reads the data of a matched rendezvous into `buffer` and tells the sender when it is there; the completion
// of the buffer follows then. `headers`: those of the message, which come back to its sender. REQUIRES:
// has_room_for_rendezvous(), headers.size() >= kTagHeaderBytes + kRendezvousHeaderBytes
void fetch_rendezvous(QueuePair& qp, const TaggedMessage& message, const queues::RecvWqe& buffer,
                      ConstBytes headers);

}  // namespace verbena::transport
