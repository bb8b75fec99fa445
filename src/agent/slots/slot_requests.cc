// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/slot_requests.h"

#include <optional>

#include "agent/sessions/client_events.h"
#include "base/text.h"
#include "control/model/message_socket.h"

namespace verbena::agent {

namespace {

constexpr const char* kTooOld =
    "the agent hands packets over to programs of this user, which this program's Verbena is too old for: "
    "start the program again";

}  // namespace

RequestResult<protocol::TakeSlotReply> SlotRequests::take_slot(const Lessee& client,
                                                               const protocol::TakeSlotRequest&) {
  const auto slot = slots_.lease(client);
  if (!slot) {
    const int error = slot.error().code;
    if (error == ENOSPC) return refuse(error, "all slots are leased");
    if (error == EDQUOT)
      return refuse(ENOSPC, "programs of this user have as many slots as are for one user");
    if (error == EBUSY)
      return refuse(error, "programs of this user hold the locks of their sockets: end them, or wait");
    return refuse(error, "no socket or status page could be made");
  }
  Reply<protocol::TakeSlotReply> reply;
  reply.message.index = slot->index;
  reply.message.wire = wire_of(*slot);
  reply.fds = {slot->page};
  if (reply.message.wire == protocol::SlotWire::kSocket) {
    reply.fds.push_back(slot->socket);
  } else if (reply.message.wire == protocol::SlotWire::kNone) {
    store_text(reply.message.no_wire_reason, wire_.no_wire_reason());
  } else if (client.protocol_version >= protocol::kFirstVersionWithForwarding) {
    reply.last_fd = wire_.take_receiver(slot->index);
  } else {
    reply.message.wire = protocol::SlotWire::kNone;
    [[maybe_unused]] const UniqueFd unused = wire_.take_receiver(slot->index);
    store_text(reply.message.no_wire_reason, kTooOld);
  }
  return reply;
}

RequestResult<> SlotRequests::keep_slot(const Lessee& client, const protocol::SlotRequest& request) {
  return plain_reply(slots_.keep(request.index, client), "the slot is not known to be leased to this user");
}

RequestResult<> SlotRequests::claim_slot(const Lessee& client, const protocol::ClaimSlotRequest& request) {
  return plain_reply(slots_.claim(request.index, request.secret, client),
                     "the slot is not known to be leased to this process");
}

RequestResult<> SlotRequests::return_slot(const Lessee& client, const protocol::SlotRequest& request) {
  return plain_reply(slots_.take_back(request.index, client.session),
                     "the slot is not leased to this process");
}

void ChannelRequests::ask_for_channel(uint64_t session, uint32_t own_slot, uint32_t peer_slot) {
  auto end = connect(session, own_slot, peer_slot);
  control::SlotChannel answer{
      own_slot, peer_slot, true, end ? 0 : end.error().code, {}, slots_.user_of(peer_slot)};
  if (end) answer.socket = std::move(*end);
  tell<&ClientEvents::tell_channel>(agent_, session, std::move(answer));
}

// Returns the requester's end, and sends the other end to the peer's session. An end that no process gets is
// closed here, and the other process notices.
Result<UniqueFd> ChannelRequests::connect(uint64_t session, uint32_t own_slot, uint32_t peer_slot) {
  if (own_slot == peer_slot || !slots_.is_leased_to_session(own_slot, session)) return fail(EINVAL);
  const auto peer = session_with(peer_slot);
  if (!peer) return fail(peer.error().code);
  if (awaits_end(own_slot, peer_slot)) return fail(EAGAIN);
  auto ends = control::make_socket_pair();
  if (!ends) return fail(EAGAIN);
  control::SlotChannel channel{
      peer_slot, own_slot, false, 0, std::move(ends->theirs), slots_.user_of(own_slot)};
  if (!tell<&ClientEvents::tell_channel>(agent_, *peer, std::move(channel))) return fail(EAGAIN);
  peers_.join(own_slot, peer_slot);
  return std::move(ends->ours);
}

void ChannelRequests::lease_ending(uint32_t slot) {
  peers_.end(slot);
  tellings_.queue();
}

void ChannelRequests::end_heard(uint64_t session, uint32_t slot, uint32_t ended) {
  if (slots_.is_leased_to_session(slot, session)) peers_.heard(slot, ended);
}

void ChannelRequests::has_room(uint64_t session) {
  if (ClientEvents* const events = agent_.events_of(session); events != nullptr) events->set_telling(false);
  tellings_.queue();
}

void ChannelRequests::tell_rest_to(uint32_t slot) {
  if (peers_.must_hear(slot)) tellings_.queue();
}

// Queueing a piece may fail for lack of memory. Then this runs again, and goes on with the other sessions.
void ChannelRequests::queue_tellings() {
  peers_.for_each_that_must_hear([this](uint32_t slot) {
    const auto leased = slots_.find(slot);
    if (!leased || leased->index != slot || leased->lessee.session == 0) return;
    const Lessee& lessee = leased->lessee;
    if (lessee.protocol_version < protocol::kFirstVersionWithChannels) return peers_.forget(slot);
    ClientEvents* const events = agent_.events_of(lessee.session);
    if (events == nullptr || events->is_telling()) return;
    loop_.in_turn_of(lessee.uid, [this, session = lessee.session] { return tell_next(session); });
    events->set_telling(true);
  });
}

bool ChannelRequests::tell_next(uint64_t session) {
  ClientEvents* const events = agent_.events_of(session);
  if (events == nullptr) return false;
  std::optional<uint32_t> next;
  slots_.for_each_of(session, [&](uint32_t slot) {
    if (peers_.must_hear(slot)) next = slot;
  });
  if (!next) {
    events->set_telling(false);
    return false;
  }
  const bool told = peers_.tell_one(*next, [&](uint32_t ended) {
    return events->tell_channel({*next, ended, false, ESTALE, {}, kNobody});
  });
  if (!told) events->await_room();
  return told;
}

void ChannelRequests::assume(const std::vector<SlotRecord>& slots) {
  for (const SlotRecord& slot : slots) {
    for (const SlotRecord& other : slots) {
      if (!slot.leased || other.uid == kNobody || other.uid == slot.uid) continue;
      if (other.leased) {
        peers_.join(slot.index, other.index);
      } else {
        peers_.must_tell(slot.index, other.index);
      }
    }
  }
  tellings_.queue();
}

Result<uint64_t> ChannelRequests::session_with(uint32_t slot) const {
  const auto leased = slots_.find(slot);
  if (!leased || leased->index != slot) return fail(ENOENT);
  // Leased by a former agent; the process has not reconnected yet.
  if (leased->lessee.session == 0) return fail(EAGAIN);
  if (leased->lessee.protocol_version < protocol::kFirstVersionWithChannels) return fail(EOPNOTSUPP);
  return leased->lessee.session;
}

RequestResult<> DomainRequests::open_domain(const Lessee& client, const protocol::DomainRequest& request,
                                            ClientFile file) {
  constexpr const char* kRefused = "the XRC domain cannot be opened so";
  const DomainTable::Mode mode{.create = (request.flags & protocol::DomainRequest::kCreate) != 0,
                               .exclusive = (request.flags & protocol::DomainRequest::kExclusive) != 0};
  if (!file) return refuse(EBADF, "without the domain's file");
  if (!slots_.is_leased_to_session(request.slot, client.session)) return refuse(EINVAL, kRefused);
  return plain_reply(domains_.open({client.session, request.domain, request.slot, client.uid}, file.get(),
                                   request.device_index, mode),
                     kRefused);
}

RequestResult<> DomainRequests::close_domain(const Lessee& client, const protocol::DomainRequest& request) {
  return plain_reply(domains_.close(client.session, request.domain), "no such XRC domain is open");
}

void DomainRequests::ask_for_peer(uint64_t session, uint64_t name, uint32_t slot) {
  const auto own_slot = domains_.slot_of(session, name);
  const auto owner = domains_.find(session, name, slot);
  const uid_t other = slots_.user_of(slot);
  const auto answer = [&](int error, UniqueFd end = {}) {
    control::DomainPeer peer{name, slot, true, error, std::move(end)};
    tell<&ClientEvents::tell_peer>(agent_, session, std::move(peer), other);
  };
  if (!own_slot || !owner) {
    // A process from before the agent's restart may have the domain open and not have reconnected yet.
    const bool may_come = own_slot && slots_.orphans().contains(slot);
    return answer(may_come ? EAGAIN : ENOENT);
  }
  if (*own_slot == slot) return answer(EINVAL);
  if (channels_.awaits_end(*own_slot, slot)) return answer(EAGAIN);
  auto ends = control::make_socket_pair();
  if (!ends) return answer(EAGAIN);
  // An end that no process gets is closed here, and the other process notices.
  const uid_t asker = slots_.user_of(*own_slot);
  control::DomainPeer peer{owner->name, *own_slot, false, 0, std::move(ends->theirs)};
  const bool told = tell<&ClientEvents::tell_peer>(agent_, owner->session, std::move(peer), asker);
  if (!told) return answer(EAGAIN);
  channels_.join(*own_slot, slot);
  answer(0, std::move(ends->ours));
}

}  // namespace verbena::agent
