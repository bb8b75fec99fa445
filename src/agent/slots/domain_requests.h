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

// What clients ask of XRC domains: to open and close them, and to meet another process that has one open.
class DomainRequests {
 public:
  // Tells a session of another process, which is of the user `other`. False: it does not hear of this.
  using Tell = std::function<bool(uint64_t session, control::DomainPeer peer, uid_t other)>;
  DomainRequests(DomainTable& domains, const SlotLeases& slots, Tell tell)
      : domains_(domains), slots_(slots), tell_(std::move(tell)) {}

  RequestResult<> open_domain(const Borrower& client, const protocol::DomainRequest& request,
                              ClientFile file);
  RequestResult<> close_domain(const Borrower& client, const protocol::DomainRequest& request);

  // The session asks for a link to the process at `slot` in its domain `name`. Both are told.
  void ask_for_peer(uint64_t session, uint64_t name, uint32_t slot);

 private:
  DomainTable& domains_;
  const SlotLeases& slots_;
  const Tell tell_;
};

}  // namespace verbena::agent
