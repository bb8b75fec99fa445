// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/identifier.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/parameters.h"

namespace verbena::agent {

// Returns a connection's data in the form of the agent protocol. Events carry this record to the program,
// which restores the connection from it with the next agent. `id`: the connection's identifier.
protocol::CmConnection record_of(const cm::ConnectionInfo& info, const CmIdentifier& id);

// Returns the data with which the connection manager restores a connection. `record` comes from the program
// and is untrusted: numbers are cut to their width. Role, QP type, receive PSN and path MTU come from `id`.
cm::ConnectionInfo agreed_in(const protocol::CmConnection& record, const CmIdentifier& id,
                             const roce::Path& path);

}  // namespace verbena::agent
