// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <memory>
#include <type_traits>
#include <utility>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/cm/service.h"
#include "base/text.h"
#include "control/model/link.h"
#include "management/cm/parameters.h"

namespace verbena::agent {

namespace {

using cm::Admission;
using protocol::ConnectionParameters;

template <class Message>
constexpr bool kIsDatagram = std::is_same_v<Message, cm::SidrReq>;

// The answer if there is no listener on that port of that device.
template <class Message>
Admission no_service() {
  return kIsDatagram<Message> ? Admission::refuse(cm::SidrStatus::kUnsupported)
                              : Admission::refuse(cm::RejReason::kInvalidServiceId);
}

template <class Message>
Admission refused(cm::RejReason reason = cm::RejReason::kConsumer) {
  return kIsDatagram<Message> ? Admission::refuse(cm::SidrStatus::kRejected) : Admission::refuse(reason);
}

// Returns the QP type that the listener must have.
uint8_t passive_qp_type(const cm::Req& req) {
  if (req.is_xrc()) return IBV_QPT_XRC_RECV;
  return req.transport == cm::Transport::kUc ? IBV_QPT_UC : IBV_QPT_RC;
}
uint8_t passive_qp_type(const cm::SidrReq&) {
  return IBV_QPT_UD;
}

// Returns the path to the peer. A REQ's path is given in GIDs over RoCE.
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

// Whether the header names the ends of the path, which are its GIDs over RoCE. Otherwise a request could
// reach a listener for this host's own requests only, or pretend to be another host's.
bool names_ends_of(const roce::Path& path, const cm::IpHeader& header) {
  return header.destination == path.source && header.source == path.destination;
}

// Returns the packet life time from which the peer has computed its ACK timeout.
uint8_t life_time_of(uint8_t ack_timeout) {
  return ack_timeout > 0 ? static_cast<uint8_t>(ack_timeout - 1) : 0;
}

void fill_route(protocol::CmRoute& route, const LinkDirectory::Place& place, const roce::Path& path) {
  store_text(route.link, place.link->name);
  route.device_index = place.link->device_index;
  route.gid_index = place.gid_index;
  std::ranges::copy(path.source.bytes, route.source_gid);
  std::ranges::copy(path.destination.bytes, route.destination_gid);
  route.flow_label = path.flow_label;
  route.traffic_class = path.traffic_class;
  route.hop_limit = path.hop_limit;
}

void fill_path(protocol::CmRoute& route, const cm::Req& req, const control::Link&) {
  route.path_mtu = req.path_mtu;
  route.packet_life_time = life_time_of(req.primary.local_ack_timeout);
}
void fill_path(protocol::CmRoute& route, const cm::SidrReq&, const control::Link& link) {
  route.path_mtu = control::path_mtu_of(link.mtu);
}

bool can_travel(const roce::Path& path) {
  return path.destination.is_ipv4() == path.source.is_ipv4() && !path.destination.is_zero() &&
         !path.destination.is_multicast();
}

// Returns the identifier for a request that came to the listener.
std::unique_ptr<CmIdentifier> identifier_for(const CmIdentifier& listener) {
  auto id = std::make_unique<CmIdentifier>();
  id->client = listener.client;
  id->owner = listener.owner;
  id->user = listener.user;
  id->port_space = listener.port_space;
  id->qp_type = listener.qp_type;
  id->state = CmState::kConnect;
  id->is_unanswered = true;
  id->number = listener.number;  // until it gets its own
  return id;
}

// Time for an application to answer a request before the peer gives up. As in the kernel: 4.096 us * 2^24 =
// 69 s, counted from the peer's repetition.
constexpr uint8_t kServiceTimeout = 24;

CmIdentifier& identifier(uint64_t context) {
  return *reinterpret_cast<CmIdentifier*>(context);
}

}  // namespace

// Finds the listener for a request. The kernel has one CM listener per device, port space and port, whatever
// its address; without one, the service ID is invalid. If the kernel's rdma_cm then finds no identifier for
// the address, it rejects the request with reason "consumer".
template <class Message>
cm::Admission PeerEvents::decide(const Message& message, const cm::Arrival& arrival) {
  const auto service = cm::parse_service_id(message.service_id);
  if (!service) return no_service<Message>();
  const auto ports = service_.port_space(static_cast<uint16_t>(service->space));
  if (!ports) return no_service<Message>();
  const LinkDirectory& links = service_.links();
  const roce::Path path = path_to_peer(message, arrival);
  const auto place = links.find(path.source, path.interface_index);
  const bool is_own = links.find(path.destination, path.interface_index).has_value();
  const bool is_service = (*ports)->has_listener(service->port, [&](const PortBinding& holder) {
    const auto& id = static_cast<const CmIdentifier&>(holder);
    if (is_loopback(id.source)) return is_own;
    return !id.has_device() || (place && id.route.device_index == place->link->device_index);
  });
  const auto header = cm::decode_ip_header(std::as_bytes(std::span(message.private_data)));
  if (is_service && !(header && names_ends_of(path, *header))) return refused<Message>();
  CmIdentifier* listener = nullptr;
  CmAddress own{};
  if (is_service) {
    own = address_of(header->destination, service->port, path.interface_index);
    const auto origin = is_own ? PortSpace::Origin::kThisHost : PortSpace::Origin::kElsewhere;
    listener = static_cast<CmIdentifier*>((*ports)->find_listener(own, origin));
  }
  if (listener == nullptr) {
    if (arrival.may_wait && service_.may_listen_soon(service->port, arrival.waited)) {
      return Admission::wait();
    }
    if (service_.expects_returns()) return Admission::ignore();
    return is_service ? refused<Message>() : no_service<Message>();
  }
  if (!place || !can_travel(path)) return refused<Message>(cm::RejReason::kInvalidGid);
  if (listener->qp_type != passive_qp_type(message)) return refused<Message>();
  const uid_t user = listener->client->user();
  if (!listener->client->has_room(*listener) || !service_.manager().has_room_for(user)) {
    return Admission::ignore();
  }

  auto admitted = identifier_for(*listener);
  admitted->source = own;
  admitted->destination = address_of(header->source, header->source_port, path.interface_index);
  admitted->starting_psn = static_cast<uint32_t>(service_.random().below(1u << 24));
  fill_route(admitted->route, *place, path);
  fill_path(admitted->route, message, *place->link);
  return Admission::admit(reinterpret_cast<uint64_t>(admitted.release()), user);
}

cm::Admission PeerEvents::admit(const cm::Req& req, const cm::Arrival& arrival) {
  return decide(req, arrival);
}

cm::Admission PeerEvents::admit(const cm::SidrReq& req, const cm::Arrival& arrival) {
  return decide(req, arrival);
}

cm::Handler::Return PeerEvents::may_return(uint32_t qpn, const cm::Arrival& arrival) {
  if (service_.expects_returns()) return arrival.may_wait ? Return::kWait : Return::kPossible;
  return qpn != 0 && service_.is_orphan(qpn) ? Return::kPossible : Return::kNever;
}

// Adds an admitted request to its client. Only the context has owned the identifier until now.
void PeerEvents::take_in(cm::LocalId connection, uint64_t context, const ConnectionParameters& parameters,
                         cm::MessageType request) {
  std::unique_ptr<CmIdentifier> id(&identifier(context));
  id->connection = connection;
  CmClient& client = *id->client;
  client.add_request(std::move(id), parameters, request);
}

void PeerEvents::on_request(cm::LocalId id, uint64_t context, const cm::Req& req, const cm::Arrival&) {
  const TimePoint now = MonotonicClock::now();
  take_in(id, context, cm::without_ip_header(cm::heard_in(req)), cm::MessageType::kReq);
  [[maybe_unused]] const auto delayed =
      service_.manager().delay(id, kServiceTimeout, cm::Manager::MraTime::kOnDuplicate, {}, now);
}

void PeerEvents::on_sidr_request(cm::LocalId id, uint64_t context, const cm::SidrReq& req,
                                 const cm::Arrival&) {
  take_in(id, context, cm::without_ip_header(cm::heard_in(req)), cm::MessageType::kSidrReq);
}

void PeerEvents::on_reply(cm::LocalId connection, uint64_t context, const cm::Rep& rep) {
  CmIdentifier& id = identifier(context);
  if (id.state != CmState::kConnect) return;
  [[maybe_unused]] const auto delayed = service_.manager().delay(
      connection, kServiceTimeout, cm::Manager::MraTime::kOnDuplicate, {}, MonotonicClock::now());
  const ConnectionParameters parameters = cm::heard_in(rep, id.qp_type == IBV_QPT_XRC_SEND);
  id.client->emit(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &parameters);
}

void PeerEvents::on_ready(cm::LocalId, uint64_t context, const cm::Rtu&) {
  CmIdentifier& id = identifier(context);
  if (id.state == CmState::kConnect) id.client->emit(id, RDMA_CM_EVENT_ESTABLISHED);
}

void PeerEvents::on_rejected(cm::LocalId, uint64_t context, const cm::Rej& rej) {
  CmIdentifier& id = identifier(context);
  if (id.state != CmState::kConnect) return;
  const ConnectionParameters parameters = cm::heard_in(rej);
  id.client->emit(id, RDMA_CM_EVENT_REJECTED, rej.reason, &parameters);
}

void PeerEvents::on_unreachable(cm::LocalId, uint64_t context, cm::MessageType) {
  CmIdentifier& id = identifier(context);
  if (id.state == CmState::kConnect) id.client->emit(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

void PeerEvents::on_disconnect_request(cm::LocalId, uint64_t context, const cm::Dreq&) {
  end_connection(identifier(context), 0);
}

void PeerEvents::on_disconnected(cm::LocalId, uint64_t context, const cm::Drep* drep) {
  end_connection(identifier(context), drep != nullptr ? 0 : -ETIMEDOUT);
}

void PeerEvents::end_connection(CmIdentifier& id, int status) {
  if (id.state != CmState::kConnect) return;
  id.state = CmState::kDisconnect;
  id.client->emit(id, RDMA_CM_EVENT_DISCONNECTED, status);
}

void PeerEvents::on_time_wait_exit(cm::LocalId, uint64_t context) {
  CmIdentifier& id = identifier(context);
  if (id.state == CmState::kDisconnect) id.client->emit(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

void PeerEvents::on_sidr_reply(cm::LocalId, uint64_t context, const cm::SidrRep& rep) {
  CmIdentifier& id = identifier(context);
  if (id.state != CmState::kConnect) return;
  const ConnectionParameters parameters = cm::heard_in(rep);
  const bool granted = rep.status == cm::SidrStatus::kValid;
  id.client->emit(id, granted ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE,
                  static_cast<int>(rep.status), &parameters);
}

void PeerEvents::on_sent(const cm::ConnectionInfo& connection, const cm::Passage& passage) {
  CmIdentifier& id = identifier(connection.context);
  id.client->trace()->passed(trace::Kind::kCmSent, id, connection, passage);
}

void PeerEvents::on_received(const cm::ConnectionInfo& connection, const cm::Passage& passage) {
  CmIdentifier& id = identifier(connection.context);
  id.client->trace()->passed(trace::Kind::kCmReceived, id, connection, passage);
}

}  // namespace verbena::agent
