// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/types.h>

#include "agent/cm/address.h"
#include "agent/cm/identifier.h"
#include "agent/cm/link_directory.h"
#include "agent/cm/service.h"
#include "control/model/admin_error.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// Assigns an identifier its own address, port and device, and makes it listen. Shared by requests that ask
// for that, requests that imply it, and restored identifiers. For the agent's thread.
class Binding {
 public:
  using Outcome = control::AdminResult<void>;
  // Whether the identifier held the port with a former agent.
  enum class PortIs : uint8_t { kNew, kHeldBefore };

  // `user`: owner of the identifiers. REQUIRES: service outlives this object
  Binding(CmService& service, uid_t user) : service_(service), user_(user) {}

  // REQUIRES: the identifier is idle
  Outcome bind(CmIdentifier& id, const CmAddress& address, PortIs port = PortIs::kNew);
  // Takes the port of id.source, or any free port if that is 0.
  Outcome take_port(CmIdentifier& id, PortIs port);
  // REQUIRES: the identifier is bound
  Outcome listen(CmIdentifier& id, uint32_t backlog);

 private:
  Outcome check_local(const CmAddress& address) const;

  CmService& service_;
  const uid_t user_;
};

CmAddress wildcard(uint16_t family);

// Sets the identifier's device to the one at `place`, which has its source address.
void set_device(CmIdentifier& id, const LinkDirectory::Place& place);

// Returns the path for the connection manager. REQUIRES: id.has_device()
roce::Path path_of(const CmIdentifier& id, const LinkDirectory& links);

}  // namespace verbena::agent
