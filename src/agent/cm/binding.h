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

// Binds identifiers to a source address, a port and a device, and makes them listen. Used for bind, listen
// and resolve requests (which bind implicitly), and for restored identifiers. For the agent's thread.
class Binding {
 public:
  using Outcome = control::AdminResult<void>;
  // Tells whether a former agent had assigned the port to the identifier. Then the port may have other
  // holders, too, as long as their connections differ (PortSpace::resume()).
  enum class PortIs : uint8_t { kNew, kHeldBefore };

  // `user`: the owner of the identifiers. REQUIRES: service outlives this object
  Binding(CmService& service, uid_t user) : service_(service), user_(user) {}

  // Sets the source address, takes its port (0: any ephemeral port), and sets the device if the address
  // belongs to a link. REQUIRES: id.state is kIdle
  Outcome bind(CmIdentifier& id, const CmAddress& address, PortIs port = PortIs::kNew);
  // Takes the port in id.source, or an ephemeral port if that is 0, and records it in the ledger. Fails with
  // EACCES for a port below net.ipv4.ip_unprivileged_port_start, unless the user is root.
  Outcome take_port(CmIdentifier& id, PortIs port);
  // Makes the identifier a listener. A backlog of 0 or above 1,024 becomes 1,024. REQUIRES: state kBound
  Outcome listen(CmIdentifier& id, uint32_t backlog);

 private:
  Outcome check_local(const CmAddress& address) const;

  CmService& service_;
  const uid_t user_;
};

// Returns the wildcard address of the family, with port 0.
CmAddress wildcard(uint16_t family);

// Sets the link, the GID index, the source GID and the path MTU in id.route. REQUIRES: `place` is the link
// that has the address in id.source
void set_device(CmIdentifier& id, const LinkDirectory::Place& place);

// Returns the path of the identifier's packets, as cm::Manager takes it. Its interface_index is 0 if the
// device is gone. REQUIRES: id.has_device()
roce::Path path_of(const CmIdentifier& id, const LinkDirectory& links);

}  // namespace verbena::agent
