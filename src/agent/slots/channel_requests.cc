// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/channel_requests.h"

#include <cerrno>

#include <sys/socket.h>

#include "control/protocol/messages.h"

namespace verbena::agent {

void ChannelRequests::ask_for_channel(uint64_t session, uint32_t own_slot, uint32_t peer_slot) {
  auto end = join(session, own_slot, peer_slot);
  control::SlotChannel answer{own_slot, peer_slot, true, end ? 0 : end.error().code, {}};
  if (end) answer.socket = std::move(*end);
  tell_(session, std::move(answer), slots_.user_of(peer_slot));
}

// Returns the requester's end, and sends the other end to the peer's session. An end that no process gets is
// closed here, and the other process notices.
Result<UniqueFd> ChannelRequests::join(uint64_t session, uint32_t own_slot, uint32_t peer_slot) {
  if (own_slot == peer_slot || !slots_.is_leased_to_session(own_slot, session)) return fail(EINVAL);
  const auto peer = session_with(peer_slot);
  if (!peer) return fail(peer.error().code);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return fail(EAGAIN);
  UniqueFd asking(ends[0]);
  UniqueFd asked(ends[1]);
  const bool told = tell_(*peer, {peer_slot, own_slot, false, 0, std::move(asked)}, slots_.user_of(own_slot));
  if (!told) return fail(EAGAIN);
  return asking;
}

Result<uint64_t> ChannelRequests::session_with(uint32_t slot) const {
  const auto leased = slots_.find(slot);
  if (!leased || leased->index != slot) return fail(ENOENT);
  // Leased by a former agent; the process has not reconnected yet.
  if (leased->lessee.session == 0) return fail(EAGAIN);
  if (leased->lessee.protocol_version < protocol::kFirstVersionWithChannels) return fail(EOPNOTSUPP);
  return leased->lessee.session;
}

}  // namespace verbena::agent
