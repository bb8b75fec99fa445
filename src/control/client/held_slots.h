// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "control/client/agent_session.h"
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

}  // namespace verbena::control
