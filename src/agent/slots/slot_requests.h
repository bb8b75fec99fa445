// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "agent/agent_host.h"
#include "agent/event_loop.h"
#include "agent/sessions/client_files.h"
#include "agent/sessions/session_reply.h"
#include "agent/slots/channel_peers.h"
#include "agent/slots/domain_table.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/takeover/takeover_state.h"
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
// different users: the agent connects any two clients that it serves. The agent keeps no end of a channel.
// When the lease of a slot ends, the agent tells the processes at the other ends of the slot's channels
// (ChannelPeers). It sends each of these messages in a turn of the receiver's user (UserTurns), because
// sending one may take long, and a slot may have many channels.
class ChannelRequests {
 public:
  ChannelRequests(EventLoop& loop, const SlotLeases& slots, AgentHost& agent)
      : loop_(loop), slots_(slots), agent_(agent) {}

  // Creates a channel from the session's slot `own_slot` to `peer_slot`, which may also be a slot of this
  // session. Sends one end to the peer's session, then the other end to this session. On failure, sends this
  // session only an errno, such as ENOENT if `peer_slot` is not leased. EAGAIN while one of the two processes
  // has yet to acknowledge the end of a former lease of the other slot.
  void ask_for_channel(uint64_t session, uint32_t own_slot, uint32_t peer_slot);

  // Tells the processes that have a channel to the slot that the slot's lease ends.
  void lease_ending(uint32_t slot);
  // Returns whether any process has yet to acknowledge that the slot's lease has ended. While this is true,
  // no other user may have the slot (SlotTable). If a process does not answer, the end of its session counts
  // as its acknowledgement.
  bool is_awaited(uint32_t slot) const { return peers_.is_awaited(slot); }
  // Records that the processes of the two slots have a socket pair for an XRC domain (DomainRequests). As
  // with a channel, each process is told when the lease of the other slot ends.
  void join(uint32_t slot, uint32_t other) { peers_.join(slot, other); }
  // Returns whether one of the two slots' processes has yet to acknowledge the end of a former lease of the
  // other slot.
  bool awaits_end(uint32_t slot, uint32_t other) const {
    return peers_.awaits(slot, other) || peers_.awaits(other, slot);
  }
  // Records that the session has acknowledged, for its slot `slot`, the end of the lease of `ended`. Does
  // nothing if `slot` is not the session's.
  void end_heard(uint64_t session, uint32_t slot, uint32_t ended);
  // Sends the session further messages about ended leases. They had stopped because the session's socket was
  // full. Called when the socket has room again.
  void has_room(uint64_t session);
  // Tells the slot's holder about the ended leases that were not reported to its former session. Called when
  // the holder has reconnected.
  void tell_rest_to(uint32_t slot);
  // Called after a takeover, when the former agent's record of channels is gone. Assumes that each leased
  // slot has a channel to each slot of another user. If that other slot's lease has ended, the leased slot's
  // holder is told.
  void assume(const std::vector<SlotRecord>& slots);

 private:
  // Returns the session that holds the slot. ENOENT if the slot is not leased, EAGAIN if its process has yet
  // to reconnect, EOPNOTSUPP if the process's library has no channels.
  Result<uint64_t> session_with(uint32_t slot) const;
  Result<UniqueFd> connect(uint64_t session, uint32_t own_slot, uint32_t peer_slot);
  // Queues a piece of work for each session that must be told of an ended lease and has no such piece queued
  // yet.
  void queue_tellings();
  // Tells the session of one ended lease. Returns true if the message was sent: then this is called again.
  // Returns false if there is nothing more to tell, or if the socket has no room. In the latter case
  // has_room() continues later.
  bool tell_next(uint64_t session);

  EventLoop& loop_;
  const SlotLeases& slots_;
  AgentHost& agent_;
  ChannelPeers peers_;
  EventLoop::QueuedTask tellings_{loop_, [this] { queue_tellings(); }};
};

// Carries out clients' requests for XRC domains: opens and closes domains, and connects two processes of a
// domain. `channels` tells each of the two processes when the lease of the other one's slot ends.
class DomainRequests {
 public:
  DomainRequests(DomainTable& domains, const SlotLeases& slots, ChannelRequests& channels, AgentHost& agent)
      : domains_(domains), slots_(slots), channels_(channels), agent_(agent) {}

  RequestResult<> open_domain(const Lessee& client, const protocol::DomainRequest& request, ClientFile file);
  RequestResult<> close_domain(const Lessee& client, const protocol::DomainRequest& request);

  // Connects the session to the process that has joined the session's domain `name` with `slot`. Sends each
  // of the two an end of a socket pair. On failure, sends the session an errno: ENOENT if there is no such
  // process, EINVAL if `slot` is the session's own. EAGAIN if a retry may succeed: one of the two is busy, or
  // has not acknowledged the end of a former lease.
  void ask_for_peer(uint64_t session, uint64_t name, uint32_t slot);

 private:
  DomainTable& domains_;
  const SlotLeases& slots_;
  ChannelRequests& channels_;
  AgentHost& agent_;
};

}  // namespace verbena::agent
