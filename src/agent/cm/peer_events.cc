// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/peer_events.h"

#include <cerrno>
#include <memory>
#include <utility>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/cm/service.h"
#include "management/cm/parameters.h"

namespace verbena::agent {
namespace {

using protocol::ConnectionParameters;

// Time for an application to answer a request before the peer gives up. As in the kernel: 4.096 us * 2^24 =
// 69 s, counted from the peer's repetition.
constexpr uint8_t kServiceTimeout = 24;

CmIdentifier& identifier(uint64_t context) {
  return *reinterpret_cast<CmIdentifier*>(context);
}

}  // namespace

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
  id.client->trace()->sent(id, connection, passage);
}

void PeerEvents::on_received(const cm::ConnectionInfo& connection, const cm::Passage& passage) {
  CmIdentifier& id = identifier(connection.context);
  id.client->trace()->received(id, connection, passage);
}

}  // namespace verbena::agent
