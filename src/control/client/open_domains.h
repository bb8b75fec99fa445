// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/own_fd.h"
#include "control/client/agent_session.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// An XRC domain that this process has open.
struct OpenDomain {
  uint64_t domain;  // as we call it
  uint32_t slot;    // whose targets and queues are in it
  uint32_t device_index;
  OwnFd file;

  // `flags`: of DomainRequest.
  protocol::DomainRequest request(uint32_t flags) const;
};

// Those that are open; a new agent is given their files again. Everything happens in turns of the session.
class OpenDomains final : public Restorer {
 public:
  void add(OpenDomain domain) { domains_.push_back(std::move(domain)); }
  // The request that closes it, when it was open.
  std::optional<protocol::DomainRequest> remove(uint64_t domain);
  // In a child after fork(): closes the files.
  void abandon() { domains_.clear(); }

  Result<void> restore(const NewAgent& agent) override;
  bool needs_agent() override { return !domains_.empty(); }

 private:
  std::vector<OpenDomain> domains_;
};

}  // namespace verbena::control
