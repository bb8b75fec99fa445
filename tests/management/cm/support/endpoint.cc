// SPDX-License-Identifier: Apache-2.0
#include "management/cm/support/endpoint.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace verbena::cm {
namespace {

template <class Bytes>
Event with_data(Heard heard, LocalId id, uint64_t context, const Bytes& bytes) {
  Event event{heard, id, context};
  event.private_data.assign(bytes.begin(), bytes.end());
  return event;
}

}  // namespace

const char* heard_name(Heard heard) {
  static constexpr std::array<const char*, 11> kNames = {"request",
                                                         "reply",
                                                         "ready",
                                                         "rejected",
                                                         "unreachable",
                                                         "delay",
                                                         "disconnect request",
                                                         "disconnected",
                                                         "time wait exit",
                                                         "SIDR request",
                                                         "SIDR reply"};
  return kNames[static_cast<size_t>(heard)];
}

roce::Address address(uint8_t host) {
  const uint8_t ipv4[4] = {10, 0, 0, host};
  return roce::Address::from_ipv4(ipv4);
}

Endpoint::Endpoint(uint8_t number, ManagerConfig config, uint64_t seed)
    : host(number), manager(config, *this, *this, Random(seed)) {}

roce::Path Endpoint::path_to(const Endpoint& other) const {
  roce::Path path;
  path.source = address(host);
  path.destination = address(other.host);
  return path;
}

ConnectRequest Endpoint::parameters_to(const Endpoint& other, uint32_t qpn) const {
  ConnectRequest request;
  request.path = path_to(other);
  request.service_id = 0x01060000 + 7174;
  request.local_ca_guid = 0x1000u + host;
  request.parameters.qpn = qpn;
  request.starting_psn = 0x111111;
  request.parameters.responder_resources = 4;
  request.parameters.initiator_depth = 3;
  request.parameters.retry_count = 7;
  request.parameters.rnr_retry_count = 6;
  return request;
}

ConnectReply Endpoint::reply_parameters(uint32_t qpn) const {
  ConnectReply reply;
  reply.local_ca_guid = 0x1000u + host;
  reply.parameters.qpn = qpn;
  reply.starting_psn = 0x222222;
  reply.parameters.responder_resources = 2;
  reply.parameters.initiator_depth = 1;
  reply.parameters.rnr_retry_count = 5;
  return reply;
}

void Endpoint::receive(const Datagram& datagram, TimePoint now) {
  Arrival arrival;
  arrival.path = datagram.path;
  arrival.from_roce_port = datagram.from_roce_port;
  manager.on_mad(datagram.mad.bytes, arrival, now);
}

State Endpoint::state(LocalId id) const {
  const auto info = manager.info(id);
  if (!info) throw std::runtime_error("no such connection");
  return info->state;
}

Datagram Endpoint::take() {
  if (sent.size() != 1) throw std::runtime_error("sent " + std::to_string(sent.size()) + " datagrams");
  const Datagram datagram = sent.front();
  sent.pop_front();
  return datagram;
}

void Endpoint::hear(Event event) {
  heard.push_back(event);
  react(event);
}

Admission Endpoint::admit(const Req&, const Arrival&) {
  ++admissions_asked;
  return admission;
}
Admission Endpoint::admit(const SidrReq&, const Arrival&) {
  ++admissions_asked;
  return admission;
}

void Endpoint::on_request(LocalId id, uint64_t context, const Req& req, const Arrival&) {
  Event event = with_data(Heard::kRequest, id, context, req.private_data);
  event.remote_id = req.local_id;
  hear(event);
}
void Endpoint::on_reply(LocalId id, uint64_t context, const Rep& rep) {
  hear(with_data(Heard::kReply, id, context, rep.private_data));
}
void Endpoint::on_ready(LocalId id, uint64_t context, const Rtu& rtu) {
  hear(with_data(Heard::kReady, id, context, rtu.private_data));
}
void Endpoint::on_rejected(LocalId id, uint64_t context, const Rej& rej) {
  Event event = with_data(Heard::kRejected, id, context, rej.private_data);
  event.reason = rej.reason;
  hear(event);
}
void Endpoint::on_unreachable(LocalId id, uint64_t context, MessageType unanswered) {
  Event event{Heard::kUnreachable, id, context};
  event.reason = static_cast<uint16_t>(unanswered);
  hear(event);
}
void Endpoint::on_delay(LocalId id, uint64_t context, const Mra& mra) {
  hear(with_data(Heard::kDelay, id, context, mra.private_data));
}
void Endpoint::on_disconnect_request(LocalId id, uint64_t context, const Dreq& dreq) {
  hear(with_data(Heard::kDisconnectRequest, id, context, dreq.private_data));
}
void Endpoint::on_disconnected(LocalId id, uint64_t context, const Drep* drep) {
  if (drep == nullptr) return hear({Heard::kDisconnected, id, context});
  Event event = with_data(Heard::kDisconnected, id, context, drep->private_data);
  event.has_drep = true;
  hear(event);
}
void Endpoint::on_time_wait_exit(LocalId id, uint64_t context) {
  hear({Heard::kTimeWaitExit, id, context});
}
void Endpoint::on_sidr_request(LocalId id, uint64_t context, const SidrReq& req, const Arrival&) {
  Event event = with_data(Heard::kSidrRequest, id, context, req.private_data);
  event.remote_id = req.request_id;
  hear(event);
}
void Endpoint::on_sidr_reply(LocalId id, uint64_t context, const SidrRep& rep) {
  Event event = with_data(Heard::kSidrReply, id, context, rep.private_data);
  event.reason = static_cast<uint16_t>(rep.status);
  event.number = rep.qpn;
  hear(event);
}
void Pair::carry() {
  while (!a.sent.empty() || !b.sent.empty()) {
    Endpoint& sender = a.sent.empty() ? b : a;
    const Datagram datagram = sender.sent.front();
    sender.sent.pop_front();
    for (Endpoint* receiver : {&a, &b}) {
      if (datagram.path.destination == address(receiver->host)) receiver->receive(datagram, now);
    }
  }
}

void Pair::pass(Duration time) {
  const TimePoint until = now + time;
  carry();
  for (;;) {
    const TimePoint next = std::min(a.manager.deadline(), b.manager.deadline());
    if (next > until) break;
    now = std::max(now, next);
    a.manager.on_timer(now);
    b.manager.on_timer(now);
    carry();
  }
  now = until;
}

void Pair::pass_in_silence(Duration time) {
  const TimePoint until = now + time;
  for (;;) {
    const TimePoint next = std::min(a.manager.deadline(), b.manager.deadline());
    if (next > until) break;
    now = std::max(now, next);
    a.manager.on_timer(now);
    b.manager.on_timer(now);
    a.sent.clear();
    b.sent.clear();
  }
  now = until;
}

Pair::Ids Pair::connect(uint32_t qpn_of_a, uint32_t qpn_of_b) {
  const auto id = a.manager.connect(a.parameters_to(b, qpn_of_a), 5, now);
  carry();
  const LocalId passive = b.last().id;
  if (!b.manager.reply(passive, b.reply_parameters(qpn_of_b), now)) throw std::runtime_error("reply");
  carry();
  if (!a.manager.ready(*id, {}, now)) throw std::runtime_error("ready");
  carry();
  return {*id, passive};
}

HalfOpen::HalfOpen(ManagerConfig config) : Pair(config) {
  active = *a.manager.connect(a.parameters_to(b), 5, now);
  carry();
  passive = b.last().id;
}

void HalfOpen::reply() {
  if (!b.manager.reply(passive, b.reply_parameters(), now)) throw std::runtime_error("reply");
  carry();
}

}  // namespace verbena::cm
