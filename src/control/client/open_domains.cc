// SPDX-License-Identifier: Apache-2.0
#include "control/client/open_domains.h"

#include <algorithm>

namespace verbena::control {

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
