// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include <infiniband/verbs.h>

#include "wire/roce/packet.h"
#include "wire/roce/psn.h"

namespace verbena::transport {

class QueuePair;

// A request that an XRC target takes for a shared receive queue of another process.
struct ForwardedRequest {
  const QueuePair& target;
  const roce::Packet& packet;
  // Requests that follow each other without a gap have the same; a larger one says that what was not answered
  // until then is to be forgotten, and that the PSN of this one is the next.
  uint32_t run = 0;
  uint32_t msn = 0;  // the target's, before this request
  // The target has had an answer to it before: to be answered once more from what is saved.
  bool repeated = false;
};

// What the process that has the queue says of such requests: an AETH with its PSN. An acknowledgement covers
// everything of the run up to it; a NAK acknowledges what is before it, ends the run, and what follows in it
// is forgotten.
struct OwnerAnswer {
  uint32_t owner = 0;  // the slot of the queue
  uint32_t run = 0;
  uint8_t syndrome = 0;
  roce::Psn psn;
  uint32_t msn = 0;
  std::optional<ibv_event_type> event;  // what a NAK is to the target
};

// Where an XRC target's requests go whose shared receive queue is another process's that has the same domain
// open: to that process, which places and completes them as if the target were its own (a Delegate stands in
// for it there), and answers with QueuePair::on_owner_answer(), later. READ responses and the like it sends
// to the requester itself. If it ends, QueuePair::on_owner_gone() is called.
//
// For the shard's lock holder. Nothing of an answer is called from within these.
class QueueOwners {
 public:
  virtual ~QueueOwners() = default;

  // A run that was never there before. Never 0.
  virtual uint32_t new_run() = 0;
  // False: there is no room now. In the order of calls, to one and the same owner.
  virtual bool pass(const ForwardedRequest& request) = 0;
  // The target takes no more requests; a message that has begun will not end.
  virtual void end(const QueuePair& target) = 0;
};

}  // namespace verbena::transport
