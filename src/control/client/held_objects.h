// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/own_fd.h"
#include "control/client/agent_session.h"
#include "control/protocol/messages.h"
#include "control/protocol/slot_secret.h"

namespace verbena::control {

// Records the slots that the agent has leased to this process, and reclaims them from each new agent. Used
// only in turns of the session (AgentSession::Turn).
class HeldSlots final : public Restorer {
 public:
  void add(uint32_t index, const protocol::SlotSecret& secret) { slots_.push_back({index, secret}); }
  void remove(uint32_t index);
  bool contains(uint32_t index) const;

  Result<void> restore(const NewAgent& agent) override;
  bool needs_agent() override { return !slots_.empty(); }

 private:
  struct Held {
    uint32_t index;
    protocol::SlotSecret secret;
  };
  static Result<void> restore(const Held& slot, const NewAgent& agent);

  std::vector<Held> slots_;
};

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
