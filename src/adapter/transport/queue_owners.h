// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include <infiniband/verbs.h>

#include "wire/roce/packet.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

class QueuePair;

// A request that an XRC target forwards, for a shared receive queue of another process.
struct ForwardedRequest {
  const QueuePair& target;
  const roce::Packet& packet;
  // Number of the run, a sequence of forwarded requests without a gap. A larger number than before tells the
  // owner that a new run starts with this request. The owner then forgets the requests that it has not
  // answered.
  uint32_t run = 0;
  uint32_t msn = 0;  // of the target, before this request
  // The target has already had an answer to this request: the owner answers again from its responder
  // resources.
  bool repeated = false;
};

// Answer of a queue's owner to forwarded requests: an AETH with its PSN. An acknowledgement covers everything
// of the run up to its PSN. A NAK acknowledges what is before its PSN, and ends the run; requests after it
// are forgotten.
struct OwnerAnswer {
  uint32_t owner = 0;  // slot of the process that owns the queue
  uint32_t run = 0;
  uint8_t syndrome = 0;
  roce::Psn psn;
  uint32_t msn = 0;
  std::optional<ibv_event_type> event;  // that a NAK raises at the target
};

// Forwards an XRC target's requests to the process that owns the shared receive queue and has the same XRC
// domain open. That process places and completes them as if the target were its own, through a StandIn, and
// answers later by QueuePair::on_owner_answer(). It sends READ responses and the like to the requester
// itself. If it ends, QueuePair::on_owner_gone() is called.
//
// For the shard's lock holder. These functions never deliver an answer before they return.
class QueueOwners {
 public:
  virtual ~QueueOwners() = default;

  // Returns a run number that was never used before; never 0.
  virtual uint32_t new_run() = 0;
  // Forwards a request; requests to the same owner stay in order. Returns false if there is no room for the
  // request now.
  virtual bool pass(const ForwardedRequest& request) = 0;
  // Tells the processes that own queues that the target has stopped receiving, in the middle of a message
  // perhaps. Each ends its StandIn; a receive request that the message had begun to fill is flushed.
  virtual void end(const QueuePair& target) = 0;
};

}  // namespace verbena::transport
