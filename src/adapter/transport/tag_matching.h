// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/transport/queue_pair.h"
#include "base/bytes.h"

namespace verbena::transport {

// Tag matching (rdma-core's Documentation/tag_matching.md): a SEND to a shared receive queue for tag matching
// begins with a header (struct ibv_tmh), whose tag selects the receive buffer. A rendezvous message has a
// second header with the location of its data instead of the data (struct ibv_rvh). The receiver READs the
// data, and then tells the sender that the sender's buffer is free.

// Sizes of the two headers, in bytes.
inline constexpr uint32_t kTagHeaderBytes = 16;
inline constexpr uint32_t kRendezvousHeaderBytes = 16;
// The longest rendezvous message in bytes that is handled without software (ibv_tm_caps::max_rndv_hdr_size).
inline constexpr uint32_t kMaxRendezvousMessage = 128;

// The parsed headers of a message.
struct TaggedMessage {
  enum class Kind : uint8_t {
    kPlain,       // its queue is not for tag matching
    kUntagged,    // delivered without matching, as it has no tag
    kUnexpected,  // tagged, but no buffer matches: delivered without matching, and counted
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

  // Whether the message needs a buffer that matches its tag. Once Inbound has executed the message's first
  // packet, tells whether such a buffer was found: otherwise `kind` has become kUnexpected.
  bool is_tagged() const { return kind == Kind::kEager || kind == Kind::kRendezvous; }
};

// Parses the headers in the payload of a message's first packet. `whole` tells that the packet is also the
// last one.
TaggedMessage read_tagged_message(ConstBytes payload, bool whole);

// Whether the QP's send queue has room for the two requests of fetch_rendezvous().
bool has_room_for_rendezvous(QueuePair& qp);

// Posts a READ that fetches the data of a matched rendezvous into `buffer`, then a SEND that tells the sender
// that its buffer is free. The receive request `buffer` completes when the READ completes. `headers` are the
// headers of the message, which the SEND returns. REQUIRES: has_room_for_rendezvous(), headers.size() >=
// kTagHeaderBytes + kRendezvousHeaderBytes
void fetch_rendezvous(QueuePair& qp, const TaggedMessage& message, const queues::RecvWqe& buffer,
                      ConstBytes headers);

}  // namespace verbena::transport
