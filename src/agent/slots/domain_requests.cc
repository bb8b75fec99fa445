// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/domain_requests.h"

#include <cerrno>
#include <utility>

#include <sys/socket.h>

#include "agent/cm/refusals.h"

namespace verbena::agent {

RequestResult<> DomainRequests::open_domain(const Lessee& client, const protocol::DomainRequest& request,
                                            ClientFile file) {
  constexpr const char* kRefused = "the XRC domain cannot be opened so";
  const DomainTable::Mode mode{.create = (request.flags & protocol::DomainRequest::kCreate) != 0,
                               .exclusive = (request.flags & protocol::DomainRequest::kExclusive) != 0};
  if (!file) return refuse(EBADF, "without the domain's file");
  if (!slots_.is_leased_to_session(request.slot, client.session)) return refuse(EINVAL, kRefused);
  const auto opened = domains_.open({client.session, request.domain, request.slot, client.uid}, file.get(),
                                    request.device_index, mode);
  if (!opened) return refuse(opened.error().code, kRefused);
  return {};
}

RequestResult<> DomainRequests::close_domain(const Lessee& client, const protocol::DomainRequest& request) {
  const auto closed = domains_.close(client.session, request.domain);
  if (!closed) return refuse(closed.error().code, "no such XRC domain is open");
  return {};
}

void DomainRequests::ask_for_peer(uint64_t session, uint64_t name, uint32_t slot) {
  const auto own_slot = domains_.slot_of(session, name);
  const auto owner = domains_.find(session, name, slot);
  const uid_t other = slots_.user_of(slot);
  if (!own_slot || !owner) {
    // A process from before the agent's restart may have the domain open and not have reconnected yet.
    const bool may_come = own_slot && slots_.orphans().contains(slot);
    tell_(session, {name, slot, true, may_come ? EAGAIN : ENOENT, {}}, other);
    return;
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    tell_(session, {name, slot, true, EAGAIN, {}}, other);
    return;
  }
  UniqueFd asking(ends[0]);
  UniqueFd asked(ends[1]);
  // An end that no process gets is closed here, and the other process notices.
  const uid_t asker = slots_.user_of(*own_slot);
  if (tell_(owner->session, {owner->name, *own_slot, false, 0, std::move(asked)}, asker)) {
    tell_(session, {name, slot, true, 0, std::move(asking)}, other);
  } else {
    tell_(session, {name, slot, true, EAGAIN, {}}, other);
  }
}

}  // namespace verbena::agent
