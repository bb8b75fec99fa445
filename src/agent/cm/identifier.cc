// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/identifier.h"

#include <infiniband/verbs.h>

namespace verbena::agent {

namespace {

cm::QpType qp_type_of(uint8_t type, bool is_active) {
  if (type == IBV_QPT_UC) return cm::QpType::kUc;
  if (type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV) {
    return is_active ? cm::QpType::kXrcInitiator : cm::QpType::kXrcTarget;
  }
  return cm::QpType::kRc;
}

}  // namespace

protocol::CmConnection record_of(const cm::ConnectionInfo& info, const CmIdentifier& id) {
  protocol::CmConnection record{};
  record.local_id = info.local_id;
  record.remote_id = info.remote_id;
  record.remote_qpn = info.remote_qpn;
  record.send_psn = info.send_psn;
  record.receive_psn = id.starting_psn;  // the accepting side readies its QP before its REP has the PSN
  record.local_qpn = info.local_qpn;
  record.ack_timeout = info.ack_timeout;
  record.retry_count = info.retry_count;
  record.rnr_retry_count = info.rnr_retry_count;
  record.responder_resources = info.responder_resources;
  record.initiator_depth = info.initiator_depth;
  record.peer_cm_timeout = info.peer_response_timeout;
  record.is_active = info.is_active ? 1 : 0;
  record.qp_type = id.qp_type;
  return record;
}

cm::ConnectionInfo agreed_in(const protocol::CmConnection& record, const CmIdentifier& id,
                             const roce::Path& path) {
  cm::ConnectionInfo info;
  info.local_id = record.local_id;
  info.remote_id = record.remote_id;
  info.path = path;
  info.is_active = id.is_active;
  info.qp_type = qp_type_of(id.qp_type, id.is_active);
  info.local_qpn = record.local_qpn & 0xffffff;
  info.remote_qpn = record.remote_qpn & 0xffffff;
  info.send_psn = record.send_psn & 0xffffff;
  info.receive_psn = id.starting_psn;
  info.path_mtu = id.route.path_mtu;
  info.ack_timeout = record.ack_timeout & 31;
  info.retry_count = record.retry_count & 7;
  info.rnr_retry_count = record.rnr_retry_count & 7;
  info.responder_resources = record.responder_resources;
  info.initiator_depth = record.initiator_depth;
  info.peer_response_timeout = record.peer_cm_timeout & 31;
  info.max_cm_retries = 15;  // as requested by the kernel's rdma_cm
  return info;
}

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
