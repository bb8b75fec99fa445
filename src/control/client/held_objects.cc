// SPDX-License-Identifier: Apache-2.0
#include "control/client/held_objects.h"

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace verbena::control {

void HeldSlots::remove(uint32_t index) {
  std::erase_if(slots_, [&](const Held& slot) { return slot.index == index; });
}

bool HeldSlots::contains(uint32_t index) const {
  return std::ranges::find(slots_, index, &Held::index) != slots_.end();
}

Result<void> HeldSlots::restore(const NewAgent& agent) {
  for (const Held& slot : slots_) {
    const auto kept = restore(slot, agent);
    if (kept) continue;
    if (agent.connection.lost()) return fail(kept.error().code);
    log_warning("the restarted agent does not know our slot {}: errno {}", slot.index, kept.error().code);
  }
  return {};
}

// Claims a slot by its secret. An agent of an older release than the previous one identifies the process by
// its pid alone.
Result<void> HeldSlots::restore(const Held& slot, const NewAgent& agent) {
  const auto ask = [&](protocol::MessageType type, auto request) -> Result<void> {
    request.index = slot.index;
    const auto reply = agent.connection.call<protocol::PlainReply>(type, request, 0, agent.deadline);
    return reply ? Result<void>() : fail(reply.error().code);
  };
  if (protocol::is_set(slot.secret)) {
    protocol::ClaimSlotRequest request{};
    request.secret = slot.secret;
    const auto claimed = ask(protocol::MessageType::kClaimSlot, request);
    if (claimed || claimed.error().code != EOPNOTSUPP) return claimed;
  }
  return ask(protocol::MessageType::kKeepSlot, protocol::SlotRequest{});
}

protocol::DomainRequest OpenDomain::request(uint32_t flags) const {
  protocol::DomainRequest request{};
  request.domain = domain;
  request.device_index = device_index;
  request.slot = slot;
  request.flags = flags;
  return request;
}

std::optional<protocol::DomainRequest> OpenDomains::remove(uint64_t domain) {
  const auto known = std::ranges::find(domains_, domain, &OpenDomain::domain);
  if (known == domains_.end()) return {};
  const protocol::DomainRequest request = known->request(0);
  domains_.erase(known);
  return request;
}

Result<void> OpenDomains::restore(const NewAgent& agent) {
  for (const OpenDomain& open : domains_) {
    if (!open.file.is_ours()) continue;
    const int file = open.file.get();
    const auto joined = agent.connection.call<protocol::PlainReply>(
        protocol::MessageType::kOpenDomain, open.request(protocol::DomainRequest::kCreate), 0, agent.deadline,
        {&file, 1});
    if (!joined && agent.connection.lost()) return fail(joined.error().code);
  }
  return {};
}

}  // namespace verbena::control
