// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/event_message.h"

#include "agent/cm/connection_record.h"

namespace verbena::agent {

protocol::CmRoute route_of(const CmIdentifier& id) {
  protocol::CmRoute route = id.route;
  route.source = id.source;
  route.destination = id.destination;
  return route;
}

protocol::CmEvent event_of(const CmIdentifier& id, const cm::Manager& manager, int type, int status,
                           const protocol::ConnectionParameters* parameters) {
  protocol::CmEvent event{};
  event.magic = protocol::CmEvent::kMagic;
  event.type = static_cast<uint32_t>(type);
  event.status = status;
  event.id = id.number;
  if (has_known_family(id.source)) {
    event.route = route_of(id);
    event.flags |= protocol::kCmHasRoute;
  }
  if (parameters != nullptr) {
    event.parameters = *parameters;
    event.flags |= protocol::kCmHasParameters;
  }
  if (id.connection == 0) return event;
  const auto info = manager.info(id.connection);
  if (!info) return event;
  event.flags |= protocol::kCmHasConnection;
  event.connection = record_of(*info, id);
  return event;
}

}  // namespace verbena::agent
