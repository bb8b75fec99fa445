// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>
#include <span>

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/un.h>

#include "mistakes.h"

namespace mistakes {
namespace {

constexpr int kWaitMs = 2000;

struct Address {
  sockaddr_in in{};
  Address(const char* text, uint16_t port) {
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    ::inet_pton(AF_INET, text, &in.sin_addr);
  }
  sockaddr* any() { return reinterpret_cast<sockaddr*>(&in); }
};

rdma_cm_id* make(rdma_event_channel* channel, rdma_port_space space = RDMA_PS_TCP) {
  rdma_cm_id* id = nullptr;
  need(rdma_create_id(channel, &id, nullptr, space) == 0, "rdma_create_id");
  return id;
}

rdma_event_channel* open_channel() {
  rdma_event_channel* const channel = rdma_create_event_channel();
  need(channel != nullptr, "rdma_create_event_channel");
  return channel;
}

// Returns the next event. The caller may forget to acknowledge it.
rdma_cm_event* next(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  need(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  std::printf("%s, status %d\n", rdma_event_str(event->event), event->status);
  return event;
}

rdma_cm_id* take(rdma_event_channel* channel) {
  rdma_cm_event* const event = next(channel);
  rdma_cm_id* const id = event->id;
  rdma_ack_cm_event(event);
  return id;
}

rdma_cm_id* listen(const Place& place, rdma_event_channel* channel, uint16_t port) {
  rdma_cm_id* const id = make(channel);
  need(rdma_bind_addr(id, Address(place.address, port).any()) == 0 && rdma_listen(id, 4) == 0, "rdma_listen");
  return id;
}

void create_qp(rdma_cm_id* id) {
  ibv_qp_init_attr attr{};
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  need(rdma_create_qp(id, nullptr, &attr) == 0, "rdma_create_qp");
}

// Returns an identifier with a resolved route.
rdma_cm_id* resolve(const Place& place, rdma_event_channel* channel, uint16_t port) {
  rdma_cm_id* const id = make(channel);
  need(rdma_resolve_addr(id, nullptr, Address(place.address, port).any(), kWaitMs) == 0, "rdma_resolve_addr");
  take(channel);
  need(rdma_resolve_route(id, kWaitMs) == 0, "rdma_resolve_route");
  take(channel);
  return id;
}

// Returns a connection request that waits to be accepted.
rdma_cm_id* request(const Place& place, rdma_event_channel* channel) {
  listen(place, channel, 7500);
  rdma_event_channel* const other = open_channel();
  rdma_cm_id* const caller = resolve(place, other, 7500);
  create_qp(caller);
  rdma_conn_param parameters{};
  need(rdma_connect(caller, &parameters) == 0, "rdma_connect");
  return take(channel);
}

constexpr Mistake kMistakes[] = {
    {"nobody_listens",
     [](const Place& place) {
       rdma_event_channel* const channel = open_channel();
       rdma_cm_id* const id = resolve(place, channel, 7999);
       create_qp(id);
       rdma_conn_param parameters{};
       need(rdma_connect(id, &parameters) == 0, "rdma_connect");
       take(channel);
     }},
    {"nobody_listens_for_datagrams",
     [](const Place& place) {
       rdma_event_channel* const channel = open_channel();
       rdma_cm_id* const id = make(channel, RDMA_PS_UDP);
       need(rdma_resolve_addr(id, nullptr, Address(place.address, 7999).any(), kWaitMs) == 0, "resolve");
       take(channel);
       need(rdma_resolve_route(id, kWaitMs) == 0, "rdma_resolve_route");
       take(channel);
       rdma_conn_param parameters{};
       need(rdma_connect(id, &parameters) == 0, "rdma_connect");
       take(channel);
     }},
    {"bind_to_foreign_address",
     [](const Place&) { rdma_bind_addr(make(open_channel()), Address("192.0.2.77", 7500).any()); }},
    {"bind_to_unix_address",
     [](const Place&) {
       sockaddr_un address{};
       address.sun_family = AF_UNIX;
       rdma_bind_addr(make(open_channel()), reinterpret_cast<sockaddr*>(&address));
     }},
    {"bind_twice",
     [](const Place& place) {
       rdma_cm_id* const id = make(open_channel());
       need(rdma_bind_addr(id, Address(place.address, 7500).any()) == 0, "rdma_bind_addr");
       rdma_bind_addr(id, Address(place.address, 7501).any());
     }},
    {"port_in_use",
     [](const Place& place) {
       rdma_event_channel* const channel = open_channel();
       listen(place, channel, 7500);
       rdma_bind_addr(make(channel), Address(place.address, 7500).any());
     }},
    {"route_before_address", [](const Place&) { rdma_resolve_route(make(open_channel()), kWaitMs); }},
    {"connect_before_route",
     [](const Place& place) {
       rdma_event_channel* const channel = open_channel();
       rdma_cm_id* const id = make(channel);
       need(rdma_resolve_addr(id, nullptr, Address(place.address, 7500).any(), kWaitMs) == 0, "resolve");
       take(channel);
       create_qp(id);
       rdma_conn_param parameters{};
       rdma_connect(id, &parameters);
     }},
    {"connect_before_address",
     [](const Place&) {
       rdma_conn_param parameters{};
       rdma_connect(make(open_channel()), &parameters);
     }},
    {"qp_before_address",
     [](const Place&) {
       ibv_qp_init_attr attr{};
       attr.cap = {4, 4, 1, 1, 0};
       attr.qp_type = IBV_QPT_RC;
       rdma_create_qp(make(open_channel()), nullptr, &attr);
     }},
    {"resolve_twice",
     [](const Place& place) {
       rdma_event_channel* const channel = open_channel();
       rdma_resolve_addr(resolve(place, channel, 7500), nullptr, Address(place.address, 7500).any(), kWaitMs);
     }},
    {"private_data_too_long",
     [](const Place& place) {
       rdma_cm_id* const id = resolve(place, open_channel(), 7500);
       create_qp(id);
       const char data[200] = {};
       rdma_conn_param parameters{};
       parameters.private_data = data;
       parameters.private_data_len = sizeof data;
       rdma_connect(id, &parameters);
     }},
    {"accept_data_too_long",
     [](const Place& place) {
       rdma_cm_id* const id = request(place, open_channel());
       create_qp(id);
       const char data[255] = {};
       rdma_conn_param parameters{};
       parameters.private_data = data;
       parameters.private_data_len = sizeof data;
       rdma_accept(id, &parameters);
     }},
    {"accept_twice",
     [](const Place& place) {
       rdma_cm_id* const id = request(place, open_channel());
       create_qp(id);
       rdma_conn_param parameters{};
       need(rdma_accept(id, &parameters) == 0, "rdma_accept");
       rdma_accept(id, &parameters);
     }},
    {"accept_a_listener",
     [](const Place& place) {
       rdma_conn_param parameters{};
       rdma_accept(listen(place, open_channel(), 7500), &parameters);
     }},
    {"too_many_responder_resources",
     [](const Place& place) {
       rdma_cm_id* const id = resolve(place, open_channel(), 7500);
       create_qp(id);
       rdma_conn_param parameters{};
       parameters.responder_resources = 200;
       rdma_connect(id, &parameters);
     }},
    {"unknown_port_space",
     [](const Place&) {
       rdma_cm_id* id = nullptr;
       rdma_create_id(open_channel(), &id, nullptr, no_such<rdma_port_space>(0x999));
     }},
    {"datagrams_on_tcp",
     [](const Place& place) {
       rdma_cm_id* const id = resolve(place, open_channel(), 7500);
       ibv_qp_init_attr attr{};
       attr.cap = {4, 4, 1, 1, 0};
       attr.qp_type = IBV_QPT_UD;
       rdma_create_qp(id, nullptr, &attr);
     }},
    {"destroyed_identifier",
     [](const Place& place) {
       rdma_cm_id* const id = make(open_channel());
       rdma_destroy_id(id);
       rdma_bind_addr(id, Address(place.address, 7500).any());
     }},
    {"destroyed_channel",
     [](const Place&) {
       rdma_event_channel* const channel = open_channel();
       rdma_destroy_event_channel(channel);
       rdma_cm_id* id = nullptr;
       rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
     }},
    {"event_not_acknowledged",
     [](const Place& place) {
       rdma_event_channel* const channel = open_channel();
       rdma_cm_id* const id = make(channel);
       need(rdma_resolve_addr(id, nullptr, Address(place.address, 7500).any(), kWaitMs) == 0, "resolve");
       next(channel);
       rdma_destroy_id(id);
     }},
    {"disconnect_unconnected", [](const Place&) { rdma_disconnect(make(open_channel())); }},
    {"join_unicast_address",
     [](const Place& place) {
       rdma_event_channel* const channel = open_channel();
       rdma_cm_id* const id = make(channel, RDMA_PS_UDP);
       need(rdma_bind_addr(id, Address(place.address, 0).any()) == 0, "rdma_bind_addr");
       if (rdma_join_multicast(id, Address("10.9.0.2", 0).any(), nullptr) == 0) take(channel);
     }},
    {"join_before_bind",
     [](const Place&) {
       rdma_join_multicast(make(open_channel(), RDMA_PS_UDP), Address("239.1.2.3", 0).any(), nullptr);
     }},
    {"leave_group_not_joined",
     [](const Place& place) {
       rdma_cm_id* const id = make(open_channel(), RDMA_PS_UDP);
       need(rdma_bind_addr(id, Address(place.address, 0).any()) == 0, "rdma_bind_addr");
       rdma_leave_multicast(id, Address("239.1.2.3", 0).any());
     }},
    {"unknown_option",
     [](const Place&) {
       int value = 1;
       rdma_set_option(make(open_channel()), RDMA_OPTION_ID, 77, &value, sizeof value);
     }},
    {"reject_nothing", [](const Place&) { rdma_reject(make(open_channel()), nullptr, 0); }},
    {"second_qp",
     [](const Place& place) {
       rdma_cm_id* const id = resolve(place, open_channel(), 7500);
       create_qp(id);
       ibv_qp_init_attr attr{};
       attr.cap = {4, 4, 1, 1, 0};
       attr.qp_type = IBV_QPT_RC;
       rdma_create_qp(id, nullptr, &attr);
     }},
    {"connect_without_qp",
     [](const Place& place) { rdma_connect(resolve(place, open_channel(), 7500), nullptr); }},
    {"unknown_host",
     [](const Place&) {
       rdma_addrinfo* found = nullptr;
       std::printf("%d\n", rdma_getaddrinfo("no.such.host.invalid", "7500", nullptr, &found));
     }},
    {"ep_to_nobody",
     [](const Place& place) {
       rdma_addrinfo hints{}, *found = nullptr;
       hints.ai_port_space = RDMA_PS_TCP;
       need(rdma_getaddrinfo(place.address, "7999", &hints, &found) == 0, "rdma_getaddrinfo");
       ibv_qp_init_attr attr{};
       attr.cap = {4, 4, 1, 1, 0};
       rdma_cm_id* id = nullptr;
       need(rdma_create_ep(&id, found, nullptr, &attr) == 0, "rdma_create_ep");
       rdma_connect(id, nullptr);
     }},
    {"listen_twice", [](const Place& place) { rdma_listen(listen(place, open_channel(), 7500), 4); }},
};

}  // namespace

std::span<const Mistake> with_connections() {
  return kMistakes;
}

}  // namespace mistakes
