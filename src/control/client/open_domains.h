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
  uint64_t domain;  // this process's number for the domain
  uint32_t slot;    // the slot with the process's target QPs and shared receive queues of the domain
  uint32_t device_index;
  OwnFd file;

  // Returns a request about the domain with these DomainRequest flags.
  protocol::DomainRequest request(uint32_t flags) const;
};

// Records the XRC domains that the process has open, and opens them again at each new agent. Used only in
// turns of the session (AgentSession::Turn).
class OpenDomains final : public Restorer {
 public:
  void add(OpenDomain domain) { domains_.push_back(std::move(domain)); }
  // Removes a domain and returns the request that closes it, or nullopt if the domain was not open.
  std::optional<protocol::DomainRequest> remove(uint64_t domain);
  // Closes the files in a child process after fork().
  void abandon() { domains_.clear(); }

  Result<void> restore(const NewAgent& agent) override;
  bool needs_agent() override { return !domains_.empty(); }

 private:
  std::vector<OpenDomain> domains_;
};

}  // namespace verbena::control
