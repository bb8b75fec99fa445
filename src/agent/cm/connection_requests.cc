// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <utility>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client_requests.h"
#include "agent/cm/identifier.h"
#include "base/format.h"
#include "management/cm/parameters.h"

namespace verbena::agent {
namespace {

using protocol::ConnectionParameters;

constexpr size_t kRepPrivateBytes = 196;
constexpr size_t kRejPrivateBytes = 148;
constexpr size_t kSidrRepPrivateBytes = 136;

// Returns the parameters with the addresses of both ends before the application's private data (annex A11).
// REQUIRES: there is room
ConnectionParameters with_ip_header(const CmIdentifier& id, const ConnectionParameters& parameters) {
  cm::IpHeader header;
  header.source_port = port_of(id.source);
  header.source = gid_of(id.source);
  header.destination = gid_of(id.destination);
  const auto head = cm::encode_ip_header(header);
  ConnectionParameters whole = parameters;
  [[maybe_unused]] const bool fits = whole.prepend(std::as_bytes(std::span(head)));
  return whole;
}

// Returns the parameters for a connection, whose QP has no Q_Key.
ConnectionParameters without_qkey(ConnectionParameters parameters) {
  parameters.qkey = 0;
  return parameters;
}

cm::QpType qp_type_of(const CmIdentifier& id) {
  switch (id.qp_type) {
    case IBV_QPT_UC:
      return cm::QpType::kUc;
    case IBV_QPT_XRC_SEND:
      return cm::QpType::kXrcInitiator;
    case IBV_QPT_XRC_RECV:
      return cm::QpType::kXrcTarget;
    default:
      return cm::QpType::kRc;
  }
}

Outcome check_private_data(size_t length, size_t limit) {
  if (length <= limit) return {};
  return refuse(EINVAL,
                verbena::format("private data of {} bytes, and this message has room for {}", length, limit));
}

uint64_t service_id_of(const CmIdentifier& id) {
  return cm::service_id(static_cast<cm::PortSpace>(id.port_space), port_of(id.destination));
}

}  // namespace

Outcome ClientRequests::connect(CmIdentifier& id, const protocol::CmConnectRequest& request) {
  const bool resolved =
      id.state == CmState::kRouteResolved || (id.state == CmState::kAddressResolved && id.may_connect);
  if (!resolved) return wrong_state();
  if (!channels_.has_room_for_event()) return no_room_for_event();
  if (!service_.reaches(path_of(id, service_.links()))) {
    return refuse(ENETDOWN, service_.no_wire_reason() + "; only this host is reached");
  }
  const auto started = id.qp_type == IBV_QPT_UD ? connect_datagram(id, request.parameters)
                                                : connect_stream(id, request.parameters);
  if (!started) return started;
  id.is_active = true;
  id.state = CmState::kConnect;
  return {};
}

Outcome ClientRequests::connect_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters) {
  if (const auto checked = check_private_data(parameters.private_length, cm::kIpReqPrivateBytes); !checked)
    return checked;
  if (const auto checked = check_qpn(parameters.qpn); !checked) return checked;
  const control::Link* link = service_.links().by_device(id.route.device_index);
  if (link == nullptr) return refuse(ENODEV, "the device is gone");
  cm::ConnectRequest connect;
  connect.account = host_.user();
  connect.path = path_of(id, service_.links());
  connect.service_id = service_id_of(id);
  connect.local_ca_guid = load_be<uint64_t>(control::guid_of(*link).data());
  connect.qp_type = qp_type_of(id);
  connect.starting_psn = id.starting_psn;
  connect.path_mtu = id.route.path_mtu;
  connect.packet_life_time = id.route.packet_life_time;
  connect.parameters = with_ip_header(id, without_qkey(parameters));
  const auto connection = manager().connect(connect, reinterpret_cast<uint64_t>(&id), MonotonicClock::now());
  if (!connection) return refuse(connection.error().code, "the connection request cannot be sent");
  id.connection = *connection;
  return {};
}

Outcome ClientRequests::connect_datagram(CmIdentifier& id, const protocol::ConnectionParameters& parameters) {
  if (const auto checked = check_private_data(parameters.private_length, cm::kIpSidrReqPrivateBytes);
      !checked)
    return checked;
  cm::SidrRequest resolve;
  resolve.account = host_.user();
  resolve.path = path_of(id, service_.links());
  resolve.service_id = service_id_of(id);
  resolve.packet_life_time = id.route.packet_life_time;
  resolve.parameters = with_ip_header(id, parameters);
  const auto connection =
      manager().sidr_request(resolve, reinterpret_cast<uint64_t>(&id), MonotonicClock::now());
  if (!connection) return refuse(connection.error().code, "the service ID request cannot be sent");
  id.connection = *connection;
  return {};
}

Outcome ClientRequests::accept(CmIdentifier& id, const protocol::CmConnectRequest& request) {
  if (id.state != CmState::kConnect || id.connection == 0) return wrong_state();
  if (!id.is_active) return answer_request(id, request);
  const auto ready = manager().ready(id.connection, {}, MonotonicClock::now());
  if (!ready) return refuse(ready.error().code, "there is nothing to accept");
  service_.note_connection(id);
  return {};
}

// Answers a request as the program says. If that fails, rejects it as the kernel's rdma_accept() does: the
// peer must not wait for an answer that never comes. The program gets no event about the rejection.
Outcome ClientRequests::answer_request(CmIdentifier& id, const protocol::CmConnectRequest& request) {
  const bool was_unanswered = std::exchange(id.is_unanswered, false);
  Outcome answered =
      id.qp_type == IBV_QPT_UD ? accept_datagram(id, request) : accept_stream(id, request.parameters);
  if (!answered) {
    id.is_unanswered = was_unanswered;
    [[maybe_unused]] const auto rejected =
        send_rejection(id, static_cast<uint8_t>(cm::RejReason::kConsumer), {});
  }
  return answered;
}

Outcome ClientRequests::accept_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters) {
  if (const auto checked = check_private_data(parameters.private_length, kRepPrivateBytes); !checked)
    return checked;
  if (const auto checked = check_qpn(parameters.qpn); !checked) return checked;
  const control::Link* link = service_.links().by_device(id.route.device_index);
  if (link == nullptr) return refuse(ENODEV, "the device is gone");
  cm::ConnectReply reply;
  reply.local_ca_guid = load_be<uint64_t>(control::guid_of(*link).data());
  reply.starting_psn = id.starting_psn;
  reply.parameters = without_qkey(parameters);
  const auto replied = manager().reply(id.connection, reply, MonotonicClock::now());
  if (!replied) return refuse(replied.error().code, "there is nothing to accept");
  service_.note_connection(id);
  return {};
}

Outcome ClientRequests::accept_datagram(CmIdentifier& id, const protocol::CmConnectRequest& request) {
  const protocol::ConnectionParameters& parameters = request.parameters;
  if (const auto checked = check_private_data(parameters.private_length, kSidrRepPrivateBytes); !checked)
    return checked;
  if (request.refused > 0xff) return refuse(EINVAL, "no such status");
  cm::SidrReply reply;
  reply.status = static_cast<cm::SidrStatus>(request.refused);
  reply.parameters = parameters;
  if (request.refused == 0) {
    if (const auto checked = check_qpn(parameters.qpn); !checked) return checked;
    if (parameters.qkey == 0) reply.parameters.qkey = RDMA_UDP_QKEY;
  } else {  // without a QP
    reply.parameters.qpn = reply.parameters.qkey = 0;
    reply.parameters.ece_vendor = reply.parameters.ece_options = 0;
  }
  const auto replied = manager().sidr_reply(id.connection, reply, MonotonicClock::now());
  if (!replied) return refuse(replied.error().code, "there is nothing to accept");
  return {};
}

Outcome ClientRequests::reject(CmIdentifier& id, const protocol::CmRejectRequest& request) {
  if (id.connection == 0) return wrong_state();
  const bool is_datagram = id.qp_type == IBV_QPT_UD;
  const size_t limit = is_datagram ? kSidrRepPrivateBytes : kRejPrivateBytes;
  if (const auto checked = check_private_data(request.private_length, limit); !checked) return checked;
  const auto rejected = send_rejection(
      id, request.reason, std::as_bytes(std::span(request.private_data).first(request.private_length)));
  if (!rejected) return refuse(rejected.error().code, "there is nothing to reject");
  return {};
}

// REQUIRES: the data fits
Result<void> ClientRequests::send_rejection(CmIdentifier& id, uint8_t reason, ConstBytes data) {
  const TimePoint now = MonotonicClock::now();
  if (id.qp_type == IBV_QPT_UD) {
    cm::SidrReply reply;
    reply.status = cm::SidrStatus::kRejected;
    [[maybe_unused]] const bool fits = reply.parameters.set_data(data);
    return manager().sidr_reply(id.connection, reply, now);
  }
  cm::RejectParameters reply;
  reply.reason = reason;
  reply.private_data = data;
  return manager().reject(id.connection, reply, now);
}

EventOutcome ClientRequests::establish(CmIdentifier& id, const protocol::CmIdRequest&) {
  if (id.connection == 0) return wrong_state();
  const auto established = manager().establish(id.connection, MonotonicClock::now());
  if (!established) return refuse(established.error().code, "not a connection that waits for its peer");
  if (id.is_unanswered) return Done{};
  return Done{event_of(id, manager(), RDMA_CM_EVENT_ESTABLISHED)};
}

// Starts to disconnect, or confirms the peer's request. Otherwise does nothing and succeeds, like the
// kernel's rdma_cm.
Outcome ClientRequests::disconnect(CmIdentifier& id, const protocol::CmIdRequest&) {
  if (id.connection == 0) return wrong_state();
  const TimePoint now = MonotonicClock::now();
  if (!manager().disconnect(id.connection, {}, now)) {
    [[maybe_unused]] const auto confirmed = manager().confirm_disconnect(id.connection, {}, now);
  }
  return {};
}

}  // namespace verbena::agent
