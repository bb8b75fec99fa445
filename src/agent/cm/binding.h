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

// Gives an identifier its own address, port and device, and makes it listen: for requests that ask for that,
// for those that imply it, and for what a client restores. Of the agent's thread.
class Binding {
 public:
  using Outcome = control::AdminResult<void>;
  // Whether the port was the identifier's already, with a former agent.
  enum class PortIs : uint8_t { kNew, kHeldBefore };

  // `user` is whose identifiers they are. REQUIRES: service outlives this
  Binding(CmService& service, uid_t user) : service_(service), user_(user) {}

  // REQUIRES: the identifier is idle
  Outcome bind(CmIdentifier& id, const CmAddress& address, PortIs port = PortIs::kNew);
  // The port of id.source; 0 is any one that is free.
  Outcome take_port(CmIdentifier& id, PortIs port);
  // REQUIRES: the identifier is bound
  Outcome listen(CmIdentifier& id, uint32_t backlog);

 private:
  Outcome check_local(const CmAddress& address) const;

  CmService& service_;
  const uid_t user_;
};

CmAddress wildcard(uint16_t family);

// The identifier is of the device that has its source address.
void set_device(CmIdentifier& id, const LinkDirectory::Place& place);

// A path as the connection manager wants it. REQUIRES: id.has_device()
roce::Path path_of(const CmIdentifier& id, const LinkDirectory& links);

}  // namespace verbena::agent
