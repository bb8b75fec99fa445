// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/identifier.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/parameters.h"

namespace verbena::agent {

// What the connection manager knows of a connection, as events tell the program, which keeps it for the next
// agent. `id`: whose connection it is.
protocol::CmConnection record_of(const cm::ConnectionInfo& info, const CmIdentifier& id);

// The same the other way round, when a program brings it back. Nothing in `record` is trusted; its path and
// its path MTU are the identifier's.
cm::ConnectionInfo agreed_in(const protocol::CmConnection& record, const CmIdentifier& id,
                             const roce::Path& path);

}  // namespace verbena::agent
