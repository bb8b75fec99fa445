// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/librdmacm/agent_link.h"
#include "libraries/librdmacm/devices.h"
#include "libraries/librdmacm/identifier_table.h"

namespace verbena::rdmacm {

// The state of librdmacm in a process. A child after fork() gets a new one: inherited identifiers and
// channels belong to its parent. In the child, calls about inherited identifiers fail with ENODEV, except
// rdma_destroy_id(3); calls about inherited channels fail with EBADF.
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
