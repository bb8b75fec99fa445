// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "rdmacm/agent_link.h"
#include "rdmacm/devices.h"
#include "rdmacm/registry.h"

namespace verbena::rdmacm {

// What there is once in a process. A child after fork() gets a fresh one: identifiers and channels that it
// inherited are its parent's, and calls for them answer ENODEV there.
class Process {
 public:
  static Process& current();
  bool is_current() const;

  Registry registry;
  AgentLink agent{registry};
  Devices devices;

  // Identifiers, channels and memberships are numbered from 1 up.
  uint32_t next_number() { return numbers_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  Process() = default;
  std::atomic<uint32_t> numbers_{0};
};

}  // namespace verbena::rdmacm
