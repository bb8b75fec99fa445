// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "control/protocol/connection_parameters.h"
#include "control/protocol/messages.h"

namespace verbena::protocol {

// The part of the agent protocol that carries connection management: what the kernel's rdma_ucm is to
// librdmacm. The agent has the state machines (management/cm/) and QP1; a program has identifiers
// (rdma_cm_id) that it numbers itself, and event channels.
//
// Requests travel as all others do (messages.h): on a connection that has said hello, each answered by one
// reply. Events travel on channels: a channel is a SOCK_SEQPACKET socket pair that the program made. One end
// is the descriptor that the application sees (rdma_event_channel::fd); the other goes to the agent with
// kCmOpenChannel, and the program keeps a copy of it. So when the agent dies, the application's descriptor
// and all undelivered events stay as they are, the next agent gets the other end again, and the program can
// put events of its own there. The agent sends one CmEvent a message, never blocks, and keeps what does not
// fit until the socket is writable.
//
// Identifiers are numbered by the program from 1 up; those of incoming requests are numbered by the agent,
// with kCmAgentsNumber set. A number is used again only after two billion others, and not while it is in use.
// Numbers of one connection mean nothing on another. When a connection ends, its identifiers are destroyed as
// kCmDestroyId would: the peers of connections that stand get a DREQ, those being set up a REJ, ports are
// free again.

inline constexpr uint32_t kCmAgentsNumber = 0x80000000u;

// Types of these messages begin here (MessageType in messages.h lists the numbers).
//
//   kCmOpenChannel     CmChannelRequest [agent's end] -> header
//   kCmCloseChannel    CmChannelRequest -> header
//   kCmCreateId        CmCreateRequest -> header
//   kCmDestroyId       CmIdRequest -> CmDestroyReply. What is undelivered of its events is dropped by the
//   program,
//                      which knows by their number whether there is any.
//   kCmBind            CmBindRequest -> CmAddressReply
//   kCmResolveAddress  CmResolveRequest -> CmAddressReply, then ADDR_RESOLVED or ADDR_ERROR
//   kCmResolveRoute    CmIdRequest -> header, then ROUTE_RESOLVED or ROUTE_ERROR
//   kCmListen          CmListenRequest -> CmAddressReply
//   kCmConnect         CmConnectRequest -> header, then CONNECT_RESPONSE (the program decides whether the
//                      application sees that, or ESTABLISHED after kCmAccept), UNREACHABLE, REJECTED ...; for
//                      UD (SIDR): ESTABLISHED or UNREACHABLE
//   kCmAccept          CmConnectRequest -> header. Passive: the REP (or SIDR_REP). Active, after
//                      CONNECT_RESPONSE: the RTU; no event follows
//   kCmReject          CmRejectRequest -> header
//   kCmEstablish       CmIdRequest -> header: rdma_notify(IBV_EVENT_COMM_EST): the passive side's QP has
//                      received something, so the RTU must be lost; ESTABLISHED follows
//   kCmDisconnect      CmIdRequest -> header: DREQ, or DREP if the peer has sent one. DISCONNECTED follows
//                      the DREP or its absence; TIMEWAIT_EXIT follows that
//   kCmSetOption       CmOptionRequest -> header
//   kCmJoin            CmJoinRequest -> header, then MULTICAST_JOIN or MULTICAST_ERROR
//   kCmLeave           CmLeaveRequest -> header
//   kCmMigrateId       CmMigrateRequest -> header: events from now on go to the other channel
//   kCmRestoreId       CmRestoreRequest -> CmAddressReply: on a restarted agent, in place of kCmCreateId
//
// Errors are those that librdmacm's man pages and the kernel give: EINVAL for a state in which the request
// makes no sense, ENOENT for a number that is not there, EADDRINUSE, EADDRNOTAVAIL, EACCES (ports below
// net.ipv4.ip_unprivileged_port_start), ENODEV (no link has the address), EAFNOSUPPORT, ENETDOWN (no wire).

// The text of the error for a request that does not fit the identifier's state. librdmacm has a better one
// for it: it knows the state and the call.
inline constexpr std::string_view kCmWrongState = "not in this state of the identifier";

// An IPv4 or IPv6 address and port, or nothing (family 0). The layout is that of sockaddr_in6 for AF_INET6;
// for AF_INET the address is in the first four bytes.
struct CmAddress {
  uint16_t family;    // AF_INET, AF_INET6, or 0: none
  uint16_t port;      // network order; 0: none
  uint32_t scope_id;  // AF_INET6
  uint8_t address[16];
};
static_assert(sizeof(CmAddress) == 24);

// How packets of an identifier travel, once that is known.
struct CmRoute {
  CmAddress source;
  CmAddress destination;
  char link[kLinkNameBytes];  // the ibv_device's name; empty: not bound to a device
  uint32_t device_index;      // Link::device_index
  uint32_t gid_index;         // of source_gid, in that device's table
  uint8_t source_gid[16];
  uint8_t destination_gid[16];
  uint32_t flow_label;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t path_mtu;          // enum ibv_mtu
  uint8_t packet_life_time;  // 4.096 us * 2^n
};
static_assert(sizeof(CmRoute) == 160);

// What the QP of a connection needs to become RTR and RTS, beside the route; and what a restarted agent needs
// to end it.
struct CmConnection {
  uint32_t local_id;   // communication IDs (IBTA volume 1, 12.6)
  uint32_t remote_id;  // 0: not known yet
  uint32_t remote_qpn;
  uint32_t send_psn;
  uint32_t receive_psn;
  uint32_t local_qpn;
  uint8_t ack_timeout;          // local ACK timeout: 4.096 us * 2^n
  uint8_t retry_count;          // RETRY_CNT and
  uint8_t rnr_retry_count;      // RNR_RETRY of our requester
  uint8_t responder_resources;  // MAX_DEST_RD_ATOMIC
  uint8_t initiator_depth;      // MAX_QP_RD_ATOMIC
  uint8_t peer_cm_timeout;      // how long the peer takes to answer: 4.096 us * 2^n
  uint8_t is_active;            // we sent the REQ
  uint8_t qp_type;              // enum ibv_qp_type
};
static_assert(sizeof(CmConnection) == 32);

// On a channel, from the agent or from the program itself.
struct CmEvent {
  static constexpr uint32_t kMagic = 0x65766372;
  uint32_t magic;
  uint32_t type;   // enum rdma_cm_event_type
  int32_t status;  // as rdma_cm_event::status: 0, a negative errno value, or the reason of a REJ
  uint32_t id;
  uint32_t listener;   // CONNECT_REQUEST: whose `id` is a new one, numbered by the agent; else 0
  uint32_t multicast;  // MULTICAST_*: CmJoinRequest::multicast
  CmConnection connection;
  CmRoute route;
  ConnectionParameters parameters;  // of the peer, seen from our side as rdma_get_cm_event(3) has them
  uint32_t flags;                   // kCmHasRoute, kCmHasParameters ...
  uint32_t generation;              // CmChannelRequest::generation of the channel
};
inline constexpr uint32_t kCmHasRoute = 1;
inline constexpr uint32_t kCmHasParameters = 2;
inline constexpr uint32_t kCmHasConnection = 4;
inline constexpr uint32_t kCmFromProgram = 0x80000000u;  // not the agent's: the program wrote it itself
static_assert(sizeof(CmEvent) == 472 && sizeof(CmEvent) <= kMaxAgentMessageBytes);

struct CmIdRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t reserved;
};
static_assert(sizeof(CmIdRequest) == 24);

struct CmDestroyReply {
  MessageHeader header;
  uint32_t events;  // so many were put into the identifier's channel, requests to it as a listener included
  uint32_t reserved;
};
static_assert(sizeof(CmDestroyReply) == 24);

struct CmChannelRequest {
  MessageHeader header;
  uint32_t channel;  // numbered by the program
  // kCmOpenChannel: repeated in every event of the channel. The program counts its agents with it, so that
  // events that a dead agent left there are told from its successor's, whose numbers begin again.
  uint32_t generation;
};
static_assert(sizeof(CmChannelRequest) == 24);

struct CmCreateRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t channel;
  uint16_t port_space;  // enum rdma_port_space
  uint8_t qp_type;      // enum ibv_qp_type
  uint8_t reserved[5];
};
static_assert(sizeof(CmCreateRequest) == 32);

struct CmBindRequest {
  MessageHeader header;
  uint32_t id;
  CmAddress address;
  uint32_t reserved;
};
static_assert(sizeof(CmBindRequest) == 48);

struct CmAddressReply {
  MessageHeader header;
  CmRoute route;  // `source` with the port that was chosen; the device if the address names one
};
static_assert(sizeof(CmAddressReply) == 176);

struct CmResolveRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t timeout_ms;
  CmAddress source;  // family 0: the routes say
  CmAddress destination;
};
static_assert(sizeof(CmResolveRequest) == 72);

struct CmListenRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t backlog;  // 0: as many as the agent allows
};
static_assert(sizeof(CmListenRequest) == 24);

struct CmConnectRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t refused;  // kCmAccept of UD: 0, or why not (enum ib_cm_sidr_status)
  ConnectionParameters parameters;
};
static_assert(sizeof(CmConnectRequest) == 272);

struct CmRejectRequest {
  MessageHeader header;
  uint32_t id;
  uint8_t reason;  // IBTA volume 1, 12.6.7: 28 as a rule, the consumer's reject; 35 for ECE
  uint8_t private_length;
  uint8_t reserved[2];
  uint8_t private_data[kCmPrivateBytes];
};
static_assert(sizeof(CmRejectRequest) == 248);

struct CmOptionRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t option;  // RDMA_OPTION_ID_TOS, _REUSEADDR, _AFONLY, _ACK_TIMEOUT
  uint32_t value;
  uint32_t reserved;
};
static_assert(sizeof(CmOptionRequest) == 32);

struct CmJoinRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t multicast;   // numbered by the program, as identifiers are
  uint32_t join_flags;  // enum rdma_cm_join_mc_attr_flags
  uint32_t reserved;
  CmAddress group;
};
static_assert(sizeof(CmJoinRequest) == 56);

struct CmLeaveRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t multicast;
};
static_assert(sizeof(CmLeaveRequest) == 24);

struct CmMigrateRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t channel;
};
static_assert(sizeof(CmMigrateRequest) == 24);

struct CmRestoreRequest {
  MessageHeader header;
  CmCreateRequest
      create;      // its header counts for nothing; id: the program's, also where an agent gave it one
  uint32_t state;  // kCmIdle, kCmBound, kCmListening, kCmConnected, kCmResolved
  uint32_t backlog;
  uint32_t tos;             // type of service; ~0: not set
  uint32_t options;         // kCmReuseAddress ...
  CmRoute route;            // from kCmBound on
  CmConnection connection;  // kCmConnected
};
// kCmResolved: bound, with address and route resolved: kCmResolveRoute or kCmConnect may follow. kCmConnected
// without a known remote_id cannot be: such an identifier is restored as kCmResolved, or not at all.
inline constexpr uint32_t kCmIdle = 0, kCmBound = 1, kCmListening = 2, kCmConnected = 3, kCmResolved = 4;
// kCmFamilyOptionSet: the program has said whether kCmOwnFamilyOnly; else the address says, as when it was
// bound.
inline constexpr uint32_t kCmReuseAddress = 1, kCmOwnFamilyOnly = 2, kCmFamilyOptionSet = 4;
static_assert(sizeof(CmRestoreRequest) == 256);

}  // namespace verbena::protocol
