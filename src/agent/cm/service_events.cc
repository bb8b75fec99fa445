// SPDX-License-Identifier: Apache-2.0
// What peers and timers do to connections, as events of the agent protocol. They are those that the kernel's
// rdma_cm makes of the same messages, with the same status.
#include <algorithm>
#include <cerrno>
#include <type_traits>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/cm/service.h"
#include "agent_client/message_socket.h"
#include "agent_client/path_mtu.h"
#include "cm/ip_service.h"
#include "cm/spoken_parameters.h"
#include "protocol/text.h"

namespace verbena::agent {
namespace {

using cm::Admission;
using protocol::ConnectionParameters;

// How long an application may take to answer a request before the peer gives up: the kernel asks for 4.096 us
// * 2^24 = 69 s once the peer asks again.
constexpr uint8_t kServiceTimeout = 24;

CmIdentifier& identifier(uint64_t context) {
  return *reinterpret_cast<CmIdentifier*>(context);
}

template <class Message>
constexpr bool kIsDatagram = std::is_same_v<Message, cm::SidrReq>;

// The type of QP that whoever is asked for must have.
uint8_t passive_qp_type(const cm::Req& req) {
  if (req.is_xrc()) return IBV_QPT_XRC_RECV;
  return req.transport == cm::Transport::kUc ? IBV_QPT_UC : IBV_QPT_RC;
}
uint8_t passive_qp_type(const cm::SidrReq&) {
  return IBV_QPT_UD;
}

// How packets to the peer travel. Over RoCE a REQ's path says it in GIDs.
roce::Path path_to_peer(const cm::Req& req, const cm::Arrival& arrival) {
  roce::Path path;
  path.source = req.primary.remote_gid;
  path.destination = req.primary.local_gid;
  path.interface_index = arrival.path.interface_index;
  path.flow_label = req.primary.flow_label;
  path.traffic_class = req.primary.traffic_class;
  path.hop_limit = req.primary.hop_limit;
  return path;
}
roce::Path path_to_peer(const cm::SidrReq&, const cm::Arrival& arrival) {
  return cm::answer_path(arrival.path);
}

// Over RoCE a path's GIDs are the addresses of both ends. A request that names others would reach who listens
// on this host's inside alone, or pass for another host's.
bool names_ends_of(const roce::Path& path, const cm::IpHeader& header) {
  return header.destination == path.source && header.source == path.destination;
}

// The packet life time of which the peer has made its ACK timeout.
uint8_t life_time_of(uint8_t ack_timeout) {
  return ack_timeout > 0 ? static_cast<uint8_t>(ack_timeout - 1) : 0;
}

void fill_route(protocol::CmRoute& route, const LinkDirectory::Place& place, const roce::Path& path) {
  protocol::store_text(route.link, place.link->name);
  route.device_index = place.link->device_index;
  route.gid_index = place.gid_index;
  std::copy(path.source.bytes.begin(), path.source.bytes.end(), route.source_gid);
  std::copy(path.destination.bytes.begin(), path.destination.bytes.end(), route.destination_gid);
  route.flow_label = path.flow_label;
  route.traffic_class = path.traffic_class;
  route.hop_limit = path.hop_limit;
}

void fill_path(protocol::CmRoute& route, const cm::Req& req, const agent_client::Link&) {
  route.path_mtu = req.path_mtu;
  route.packet_life_time = life_time_of(req.primary.local_ack_timeout);
}
void fill_path(protocol::CmRoute& route, const cm::SidrReq&, const agent_client::Link& link) {
  route.path_mtu = agent_client::path_mtu_of(link.mtu);
}

}  // namespace

// The kernel has one listener for a device, port space and port, whatever its address; if there is none, the
// service ID is not valid. Those that its rdma_cm then finds no identifier for it refuses in the consumer's
// name.
template <class Message>
Admission CmService::admit_request(const Message& message, const cm::Arrival& arrival) {
  const auto nobody = [] {
    return kIsDatagram<Message> ? Admission::refuse(cm::SidrStatus::kUnsupported)
                                : Admission::refuse(cm::RejReason::kInvalidServiceId);
  };
  const auto refuse = [](cm::RejReason reason) {
    return kIsDatagram<Message> ? Admission::refuse(cm::SidrStatus::kRejected) : Admission::refuse(reason);
  };
  const auto service = cm::parse_service_id(message.service_id);
  if (!service) return nobody();
  const auto ports = port_space(static_cast<uint16_t>(service->space));
  if (!ports) return nobody();
  const roce::Path path = path_to_peer(message, arrival);
  const auto place = links_.find(path.source, path.interface_index);
  const bool is_own = links_.find(path.destination, path.interface_index).has_value();
  const auto origin = is_own ? PortSpace::Origin::kThisHost : PortSpace::Origin::kElsewhere;
  const bool is_service = (*ports)->has_listener(service->port, [&](const PortBinding& holder) {
    const auto& id = static_cast<const CmIdentifier&>(holder);
    if (is_loopback(id.source)) return is_own;
    return !id.has_device() || (place && id.route.device_index == place->link->device_index);
  });
  const auto header = cm::decode_ip_header(std::as_bytes(std::span(message.private_data)));
  if (is_service && !(header && names_ends_of(path, *header))) return refuse(cm::RejReason::kConsumer);
  CmIdentifier* listener = nullptr;
  CmAddress own{};
  if (is_service) {
    own = address_of(header->destination, service->port, path.interface_index);
    listener = static_cast<CmIdentifier*>((*ports)->find_listener(own, origin));
  }
  if (listener == nullptr) {
    if (arrival.may_wait) return Admission::wait();
    if (expects_returns()) return Admission::ignore();
    return is_service ? refuse(cm::RejReason::kConsumer) : nobody();
  }
  const bool reachable = path.destination.is_ipv4() == path.source.is_ipv4() && !path.destination.is_zero() &&
                         !path.destination.is_multicast();
  if (!place || !reachable) return refuse(cm::RejReason::kInvalidGid);
  if (listener->qp_type != passive_qp_type(message)) return refuse(cm::RejReason::kConsumer);
  if (!listener->client->has_room(*listener)) return Admission::ignore();

  auto admitted = std::make_unique<CmIdentifier>();
  admitted->client = listener->client;
  admitted->port_space = listener->port_space;
  admitted->qp_type = listener->qp_type;
  admitted->state = CmState::kConnect;
  admitted->is_unanswered = true;
  admitted->source = own;
  admitted->destination = address_of(header->source, header->source_port, path.interface_index);
  admitted->starting_psn = static_cast<uint32_t>(random_.below(1u << 24));
  admitted->number = listener->number;  // until it gets its own
  fill_route(admitted->route, *place, path);
  fill_path(admitted->route, message, *place->link);
  return Admission::admit(reinterpret_cast<uint64_t>(admitted.release()));
}

Admission CmService::admit(const cm::Req& req, const cm::Arrival& arrival) {
  return admit_request(req, arrival);
}

Admission CmService::admit(const cm::SidrReq& req, const cm::Arrival& arrival) {
  return admit_request(req, arrival);
}

cm::Handler::Return CmService::may_return(uint32_t qpn, const cm::Arrival& arrival) {
  if (expects_returns()) return arrival.may_wait ? Return::kWait : Return::kPossible;
  return qpn != 0 && host_.is_orphan(qpn) ? Return::kPossible : Return::kNever;
}

// The identifier is nobody's since it was admitted: the context alone has it.
void CmService::take_in(cm::LocalId connection, uint64_t context, const ConnectionParameters& parameters) {
  std::unique_ptr<CmIdentifier> id(&identifier(context));
  id->connection = connection;
  CmClient& client = *id->client;
  client.add_request(std::move(id), parameters);
}

void CmService::on_request(cm::LocalId id, uint64_t context, const cm::Req& req, const cm::Arrival&) {
  const TimePoint now = MonotonicClock::now();
  take_in(id, context, cm::without_ip_header(cm::heard_in(req)));
  [[maybe_unused]] const auto delayed =
      manager_.delay(id, kServiceTimeout, cm::Manager::MraTime::kOnDuplicate, {}, now);
}

void CmService::on_sidr_request(cm::LocalId id, uint64_t context, const cm::SidrReq& req,
                                const cm::Arrival&) {
  take_in(id, context, cm::without_ip_header(cm::heard_in(req)));
}

void CmService::on_reply(cm::LocalId connection, uint64_t context, const cm::Rep& rep) {
  CmIdentifier& id = identifier(context);
  if (id.state != CmState::kConnect) return;
  [[maybe_unused]] const auto delayed = manager_.delay(
      connection, kServiceTimeout, cm::Manager::MraTime::kOnDuplicate, {}, MonotonicClock::now());
  const ConnectionParameters parameters = cm::heard_in(rep, id.qp_type == IBV_QPT_XRC_SEND);
  id.client->emit(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &parameters);
}

void CmService::on_ready(cm::LocalId, uint64_t context, const cm::Rtu&) {
  CmIdentifier& id = identifier(context);
  if (id.state == CmState::kConnect) id.client->emit(id, RDMA_CM_EVENT_ESTABLISHED);
}

void CmService::on_rejected(cm::LocalId, uint64_t context, const cm::Rej& rej) {
  CmIdentifier& id = identifier(context);
  if (id.state != CmState::kConnect) return;
  const ConnectionParameters parameters = cm::heard_in(rej);
  id.client->emit(id, RDMA_CM_EVENT_REJECTED, rej.reason, &parameters);
}

void CmService::on_unreachable(cm::LocalId, uint64_t context, cm::MessageType) {
  CmIdentifier& id = identifier(context);
  if (id.state == CmState::kConnect) id.client->emit(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

void CmService::on_disconnect_request(cm::LocalId, uint64_t context, const cm::Dreq&) {
  end_connection(identifier(context), 0);
}

void CmService::on_disconnected(cm::LocalId, uint64_t context, const cm::Drep* drep) {
  end_connection(identifier(context), drep != nullptr ? 0 : -ETIMEDOUT);
}

void CmService::end_connection(CmIdentifier& id, int status) {
  if (id.state != CmState::kConnect) return;
  id.state = CmState::kDisconnect;
  id.client->emit(id, RDMA_CM_EVENT_DISCONNECTED, status);
}

void CmService::on_time_wait_exit(cm::LocalId, uint64_t context) {
  CmIdentifier& id = identifier(context);
  if (id.state == CmState::kDisconnect) id.client->emit(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

void CmService::on_sidr_reply(cm::LocalId, uint64_t context, const cm::SidrRep& rep) {
  CmIdentifier& id = identifier(context);
  if (id.state != CmState::kConnect) return;
  const ConnectionParameters parameters = cm::heard_in(rep);
  const bool granted = rep.status == cm::SidrStatus::kValid;
  id.client->emit(id, granted ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
                  static_cast<int>(rep.status), &parameters);
}

}  // namespace verbena::agent
