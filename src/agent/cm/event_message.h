// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/identifier.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/manager.h"

namespace verbena::agent {

// Returns id.route with the identifier's addresses filled in, as replies and events contain it.
protocol::CmRoute route_of(const CmIdentifier& id);
// Returns an event about the identifier, with route and connection data if known. `type`: RDMA_CM_EVENT_*.
// `status`: rdma_cm_event::status, which is 0, a negative errno value or the reason of a REJ.
protocol::CmEvent event_of(const CmIdentifier& id, const cm::Manager& manager, int type, int status = 0,
                           const protocol::ConnectionParameters* parameters = nullptr);

}  // namespace verbena::agent
