// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "agent/agent_host.h"
#include "agent/sessions/client_files.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/domain_table.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/slot_messages.h"
#include "control/protocol/messages.h"

namespace verbena::agent {

// Carries out clients' requests to lease a slot, reclaim it after a restart of the agent, and return it.
class SlotRequests {
 public:
  SlotRequests(SlotLeases& slots, Wire& wire) : slots_(slots), wire_(wire) {}

  RequestResult<protocol::TakeSlotReply> take_slot(const Lessee& client,
                                                   const protocol::TakeSlotRequest& request);
  RequestResult<> keep_slot(const Lessee& client, const protocol::SlotRequest& request);
  RequestResult<> claim_slot(const Lessee& client, const protocol::ClaimSlotRequest& request);
  RequestResult<> return_slot(const Lessee& client, const protocol::SlotRequest& request);

 private:
  SlotLeases& slots_;
  Wire& wire_;
};

// Carries out clients' requests for channels (socket pairs) between two slots. The slots may belong to
// different users: the agent connects any two clients that it serves. The agent keeps no end and no record of
// a channel.
class ChannelRequests {
 public:
  ChannelRequests(const SlotLeases& slots, AgentHost& agent) : slots_(slots), agent_(agent) {}

  // Creates a channel from the session's slot `own_slot` to `peer_slot`, which may also be a slot of this
  // session. Sends one end to the peer's session, then the other end to this session. On failure, sends this
  // session only an errno, such as ENOENT if `peer_slot` is not leased.
  void ask_for_channel(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

 private:
  // Returns the session that holds the slot. ENOENT if the slot is not leased, EAGAIN if its process has yet
  // to reconnect, EOPNOTSUPP if the process's library has no channels.
  Result<uint64_t> session_with(uint32_t slot) const;
  Result<UniqueFd> join(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

  const SlotLeases& slots_;
  AgentHost& agent_;
};

// Carries out clients' requests for XRC domains: opens and closes domains, and connects two processes of a
// domain.
class DomainRequests {
 public:
  DomainRequests(DomainTable& domains, const SlotLeases& slots, AgentHost& agent)
      : domains_(domains), slots_(slots), agent_(agent) {}

  RequestResult<> open_domain(const Lessee& client, const protocol::DomainRequest& request, ClientFile file);
  RequestResult<> close_domain(const Lessee& client, const protocol::DomainRequest& request);

  // Connects the session to the process that has joined the session's domain `name` with `slot`. Sends each
  // of the two an end of a socket pair. On failure, sends the session ENOENT if there is no such process,
  // EAGAIN if a retry may succeed.
  void ask_for_peer(uint64_t session, uint64_t name, uint32_t slot);

 private:
  DomainTable& domains_;
  const SlotLeases& slots_;
  AgentHost& agent_;
};

}  // namespace verbena::agent
