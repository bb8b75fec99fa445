// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "agent/sessions/foreign_closer.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/domain_table.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "control/model/domain_peer.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out clients' requests for XRC domains: opens and closes domains, and connects two processes of a
// domain.
class DomainRequests {
 public:
  // Sends a session its end of a socket pair with another process, or an errno. That process belongs to the
  // user `other`. Returns false if the session does not exist or cannot get the message.
  using Tell = std::function<bool(uint64_t session, control::DomainPeer peer, uid_t other)>;
  DomainRequests(DomainTable& domains, const SlotLeases& slots, Tell tell)
      : domains_(domains), slots_(slots), tell_(std::move(tell)) {}

  RequestResult<> open_domain(const Lessee& client, const protocol::DomainRequest& request, ClientFile file);
  RequestResult<> close_domain(const Lessee& client, const protocol::DomainRequest& request);

  // Connects the session to the process that has joined the session's domain `name` with `slot`. Sends each
  // of the two an end of a socket pair. On failure, sends the session ENOENT if there is no such process,
  // EAGAIN if a retry may succeed.
  void ask_for_peer(uint64_t session, uint64_t name, uint32_t slot);

 private:
  DomainTable& domains_;
  const SlotLeases& slots_;
  const Tell tell_;
};

}  // namespace verbena::agent
