// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/cm/identifier.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/manager.h"

namespace verbena::agent {

// Returns the identifier's route, as its program gets it in replies and events.
protocol::CmRoute route_of(const CmIdentifier& id);
// Returns an event of the identifier for its program.
protocol::CmEvent event_of(const CmIdentifier& id, const cm::Manager& manager, int type, int status = 0,
                           const protocol::ConnectionParameters* parameters = nullptr);

}  // namespace verbena::agent
