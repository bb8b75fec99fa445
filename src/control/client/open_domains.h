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
  uint64_t domain;  // this process's number for it
  uint32_t slot;    // the slot whose targets and queues are in it
  uint32_t device_index;
  OwnFd file;

  // Makes a request about the domain. `flags`: of DomainRequest.
  protocol::DomainRequest request(uint32_t flags) const;
};

// The XRC domains that the process has open. A new agent is given their files again. Used in turns of the
// session only.
class OpenDomains final : public Restorer {
 public:
  void add(OpenDomain domain) { domains_.push_back(std::move(domain)); }
  // Removes a domain and returns the request that closes it; nothing: it was not open.
  std::optional<protocol::DomainRequest> remove(uint64_t domain);
  // In a child after fork(): closes the files.
  void abandon() { domains_.clear(); }

  Result<void> restore(const NewAgent& agent) override;
  bool needs_agent() override { return !domains_.empty(); }

 private:
  std::vector<OpenDomain> domains_;
};

}  // namespace verbena::control
