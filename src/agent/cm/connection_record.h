// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/identifier.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/parameters.h"

namespace verbena::agent {

// Returns the connection manager's data of a connection. Events send it to the program, which keeps it for
// the next agent. `id`: the connection's identifier.
protocol::CmConnection record_of(const cm::ConnectionInfo& info, const CmIdentifier& id);

// Returns the connection manager's data for a connection that a program restores. Nothing in `record` is
// trusted; path and path MTU come from the identifier.
cm::ConnectionInfo agreed_in(const protocol::CmConnection& record, const CmIdentifier& id,
                             const roce::Path& path);

}  // namespace verbena::agent
