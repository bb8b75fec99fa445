// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/identifier.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/manager.h"
#include "management/cm/parameters.h"

namespace verbena::agent {

// Returns a connection's data in the form of the agent protocol. Events carry this record to the program,
// which restores the connection from it with the next agent. `id`: the connection's identifier.
protocol::CmConnection record_of(const cm::ConnectionInfo& info, const CmIdentifier& id);

// Returns the data with which the connection manager restores a connection. `record` comes from the program
// and is untrusted: numbers are cut to their width. Role, QP type, receive PSN and path MTU come from `id`.
cm::ConnectionInfo agreed_in(const protocol::CmConnection& record, const CmIdentifier& id,
                             const roce::Path& path);

// Returns id.route with the identifier's addresses filled in, as replies and events contain it.
protocol::CmRoute route_of(const CmIdentifier& id);
// Returns an event about the identifier, with route and connection data if known. `type`: RDMA_CM_EVENT_*.
// `status`: rdma_cm_event::status, which is 0, a negative errno value or the reason of a REJ.
protocol::CmEvent event_of(const CmIdentifier& id, const cm::Manager& manager, int type, int status = 0,
                           const protocol::ConnectionParameters* parameters = nullptr);

}  // namespace verbena::agent
