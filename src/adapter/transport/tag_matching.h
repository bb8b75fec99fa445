// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/transport/queue_pair.h"
#include "base/bytes.h"

namespace verbena::transport {

// Tag matching (rdma-core's Documentation/tag_matching.md): a SEND to a shared receive queue of that kind
// begins with a header (struct ibv_tmh) that selects its buffer. A rendezvous message carries the location of
// its data instead (struct ibv_rvh): the receiver READs the data, and then tells the sender that its buffer
// is free.

// Sizes of the two headers, in bytes.
inline constexpr uint32_t kTagHeaderBytes = 16;
inline constexpr uint32_t kRendezvousHeaderBytes = 16;
// The longest rendezvous message handled without software (ibv_tm_caps::max_rndv_hdr_size).
inline constexpr uint32_t kMaxRendezvousMessage = 128;

// Headers of a message.
struct TaggedMessage {
  enum class Kind : uint8_t {
    kPlain,       // its queue is not for tag matching
    kUntagged,    // delivered as it is
    kUnexpected,  // tagged, but no buffer matches: delivered as it is, and counted
    kEager,       // the data follows the header
    kRendezvous,
  };
  Kind kind = Kind::kPlain;
  uint64_t tag = 0;
  uint32_t application = 0;  // opaque, from the sender's software to the receiver's
  // Rendezvous: location of the data.
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;

  // Whether it wants a buffer by tag; once its first packet has been taken, whether it has one.
  bool is_tagged() const { return kind == Kind::kEager || kind == Kind::kRendezvous; }
};

// Reads the headers of a message's first packet. `whole`: it is also the last.
TaggedMessage read_tagged_message(ConstBytes payload, bool whole);

// Whether the QP's send queue has room for fetch_rendezvous().
bool has_room_for_rendezvous(QueuePair& qp);

// Posts requests that READ the data of a matched rendezvous into `buffer` and then tell the sender. The
// buffer completes when the READ does. `headers`: the message's, which are sent back to its sender. REQUIRES:
// has_room_for_rendezvous(), headers.size() >= kTagHeaderBytes + kRendezvousHeaderBytes
void fetch_rendezvous(QueuePair& qp, const TaggedMessage& message, const queues::RecvWqe& buffer,
                      ConstBytes headers);

}  // namespace verbena::transport
