// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "agent_client/agent_session.h"

namespace verbena::agent_client {

// The slots that the agent has lent this process; a new agent is asked to leave them to us. Everything
// happens in turns of the session.
class HeldSlots final : public Restorer {
 public:
  void add(uint32_t index) { indexes_.push_back(index); }
  void remove(uint32_t index) { std::erase(indexes_, index); }
  bool contains(uint32_t index) const;

  Result<void> restore(const NewAgent& agent) override;
  bool needs_agent() override { return !indexes_.empty(); }

 private:
  std::vector<uint32_t> indexes_;
};

}  // namespace verbena::agent_client
