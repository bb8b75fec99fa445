// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/librdmacm/agent_link.h"
#include "libraries/librdmacm/devices.h"
#include "libraries/librdmacm/identifier_table.h"

namespace verbena::rdmacm {

// What a process has one of. A child after fork() gets a fresh one: identifiers and channels that it
// inherited are its parent's, and calls for them answer ENODEV there.
class Process {
 public:
  static Process& current();
  bool is_current() const;

  IdentifierTable identifiers;
  AgentLink agent{identifiers};
  Devices devices;

 private:
  Process() = default;
};

}  // namespace verbena::rdmacm
