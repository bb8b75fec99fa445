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

// Connection management in the agent protocol: the counterpart of the kernel's rdma_ucm for librdmacm. The
// agent has the state machines (management/cm/) and QP1. A program has identifiers (rdma_cm_id), which it
// numbers, and event channels.
//
// Requests are sent like all others (messages.h): after hello, each answered by one reply. Events are sent on
// channels. A channel is a SOCK_SEQPACKET socket pair that the program creates. One end is the descriptor
// that the application sees (rdma_event_channel::fd). The other goes to the agent with kCmOpenChannel, and
// the program keeps a copy. So after an agent's death the application's descriptor and all undelivered events
// stay intact, and the next agent gets the other end again. The program can also write its own events there.
// The agent sends one CmEvent per message and never blocks; it queues events until the socket is writable.
//
// The program numbers identifiers from 1 up. Identifiers of incoming requests are numbered by the agent, with
// kCmAgentsNumber set. A number is reused only after two billion others, and never while in use. Numbers are
// local to a connection to the agent. When that connection ends, its identifiers are destroyed as by
// kCmDestroyId: peers of established connections get a DREQ, those being set up a REJ, and ports become free.

inline constexpr uint32_t kCmAgentsNumber = 0x80000000u;

// The requests and their replies; MessageType in messages.h has the numbers.
//
//   kCmOpenChannel     CmChannelRequest [agent's end] -> header
//   kCmCloseChannel    CmChannelRequest -> header
//   kCmCreateId        CmCreateRequest -> header
//   kCmDestroyId       CmIdRequest -> CmDestroyReply. The program drops the identifier's undelivered events;
//                      the reply's count tells whether there are any.
//   kCmBind            CmBindRequest -> CmAddressReply
//   kCmResolveAddress  CmResolveRequest -> CmAddressReply, then ADDR_RESOLVED or ADDR_ERROR
//   kCmResolveRoute    CmIdRequest -> header, then ROUTE_RESOLVED or ROUTE_ERROR
//   kCmListen          CmListenRequest -> CmAddressReply
//   kCmConnect         CmConnectRequest -> header, then CONNECT_RESPONSE (the program decides whether the
//                      application sees it, or ESTABLISHED after kCmAccept), UNREACHABLE, REJECTED ...; for
//                      UD (SIDR): ESTABLISHED or UNREACHABLE
//   kCmAccept          CmConnectRequest -> header. Passive: the REP (or SIDR_REP). Active, after
//                      CONNECT_RESPONSE: the RTU; no event follows
//   kCmReject          CmRejectRequest -> header
//   kCmEstablish       CmIdRequest -> header: rdma_notify(IBV_EVENT_COMM_EST): the passive side's QP has
//                      received data, so the RTU must be lost; ESTABLISHED follows
//   kCmDisconnect      CmIdRequest -> header: DREQ, or DREP if the peer has sent a DREQ. DISCONNECTED follows
//                      the DREP or its timeout; TIMEWAIT_EXIT follows that
//   kCmSetOption       CmOptionRequest -> header
//   kCmJoin            CmJoinRequest -> header, then MULTICAST_JOIN or MULTICAST_ERROR
//   kCmLeave           CmLeaveRequest -> header
//   kCmMigrateId       CmMigrateRequest -> header: later events go to the other channel
//   kCmRestoreId       CmRestoreRequest -> CmAddressReply: replaces kCmCreateId after an agent's restart
//
// Errors are those of librdmacm's man pages and the kernel: EINVAL for a request that makes no sense in the
// identifier's state, ENOENT for an unknown number, EADDRINUSE, EADDRNOTAVAIL, EACCES (ports below
// net.ipv4.ip_unprivileged_port_start), ENODEV (no link has the address), EAFNOSUPPORT, ENETDOWN (no wire).

// The error text for a request that does not fit the identifier's state. librdmacm replaces it by a better
// one, since it knows the state and the call.
inline constexpr std::string_view kCmWrongState = "not in this state of the identifier";

// An IPv4 or IPv6 address and port, or nothing (family 0). AF_INET6 has the layout of sockaddr_in6; an
// AF_INET address is in the first four bytes.
struct CmAddress {
  uint16_t family;    // AF_INET, AF_INET6, or 0: none
  uint16_t port;      // network order; 0: none
  uint32_t scope_id;  // AF_INET6
  uint8_t address[16];
};
static_assert(sizeof(CmAddress) == 24);

// The path of an identifier's packets, once it is known.
struct CmRoute {
  CmAddress source;
  CmAddress destination;
  char link[kLinkNameBytes];  // the ibv_device's name; empty: not bound to a device
  uint32_t device_index;      // Link::device_index
  uint32_t gid_index;         // of source_gid in the device's GID table
  uint8_t source_gid[16];
  uint8_t destination_gid[16];
  uint32_t flow_label;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t path_mtu;          // enum ibv_mtu
  uint8_t packet_life_time;  // 4.096 us * 2^n
};
static_assert(sizeof(CmRoute) == 160);

// The parameters with which a connection's QP becomes RTR and RTS, besides the route, and with which a
// restarted agent can end the connection.
struct CmConnection {
  uint32_t local_id;   // communication IDs (IBTA volume 1, 12.6)
  uint32_t remote_id;  // 0: unknown yet
  uint32_t remote_qpn;
  uint32_t send_psn;
  uint32_t receive_psn;
  uint32_t local_qpn;
  uint8_t ack_timeout;          // local ACK timeout: 4.096 us * 2^n
  uint8_t retry_count;          // RETRY_CNT and
  uint8_t rnr_retry_count;      // RNR_RETRY of our requester
  uint8_t responder_resources;  // MAX_DEST_RD_ATOMIC
  uint8_t initiator_depth;      // MAX_QP_RD_ATOMIC
  uint8_t peer_cm_timeout;      // the peer's response time: 4.096 us * 2^n
  uint8_t is_active;            // this side sent the REQ
  uint8_t qp_type;              // enum ibv_qp_type
};
static_assert(sizeof(CmConnection) == 32);

// An rdma_cm event as sent on an event channel's socket, by the agent or (kCmFromProgram) by the process
// itself.
struct CmEvent {
  static constexpr uint32_t kMagic = 0x65766372;
  uint32_t magic;
  uint32_t type;   // enum rdma_cm_event_type
  int32_t status;  // as rdma_cm_event::status: 0, a negative errno value, or the reason of a REJ
  uint32_t id;
  uint32_t listener;   // CONNECT_REQUEST: the listener; `id` is new, numbered by the agent. Else 0
  uint32_t multicast;  // MULTICAST_*: CmJoinRequest::multicast
  CmConnection connection;
  CmRoute route;
  ConnectionParameters parameters;  // of the peer, from our view, as in rdma_get_cm_event(3)
  uint32_t flags;                   // kCmHasRoute, kCmHasParameters ...
  uint32_t generation;              // CmChannelRequest::generation of the channel
};
inline constexpr uint32_t kCmHasRoute = 1;
inline constexpr uint32_t kCmHasParameters = 2;
inline constexpr uint32_t kCmHasConnection = 4;
inline constexpr uint32_t kCmFromProgram = 0x80000000u;  // written by the program itself, not by the agent
static_assert(sizeof(CmEvent) == 472 && sizeof(CmEvent) <= kMaxAgentMessageBytes);

struct CmIdRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t reserved;
};
static_assert(sizeof(CmIdRequest) == 24);

struct CmDestroyReply {
  MessageHeader header;
  uint32_t events;  // sent to the identifier's channel so far, including a listener's connection requests
  uint32_t reserved;
};
static_assert(sizeof(CmDestroyReply) == 24);

struct CmChannelRequest {
  MessageHeader header;
  uint32_t channel;  // numbered by the program
  // kCmOpenChannel: repeated in every event of the channel. The program increments it for each agent, to tell
  // a dead agent's events from those of its successor, whose numbers start again.
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
  CmRoute route;  // `source` with the chosen port; the device if the address determines one
};
static_assert(sizeof(CmAddressReply) == 176);

struct CmResolveRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t timeout_ms;
  CmAddress source;  // family 0: chosen by the routing table
  CmAddress destination;
};
static_assert(sizeof(CmResolveRequest) == 72);

struct CmListenRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t backlog;  // 0: the agent's maximum
};
static_assert(sizeof(CmListenRequest) == 24);

struct CmConnectRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t refused;  // kCmAccept of UD: 0, or the reason to refuse (enum ib_cm_sidr_status)
  ConnectionParameters parameters;
};
static_assert(sizeof(CmConnectRequest) == 272);

struct CmRejectRequest {
  MessageHeader header;
  uint32_t id;
  uint8_t reason;  // IBTA volume 1, 12.6.7: usually 28, consumer reject; 35 for ECE
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
  uint32_t multicast;   // numbered by the program, like identifiers
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
  // `header` of this is unused. The id is the program's: it renumbers identifiers that an agent had numbered.
  CmCreateRequest create;
  uint32_t state;  // kCmIdle, kCmBound, kCmListening, kCmConnected, kCmResolved
  uint32_t backlog;
  uint32_t tos;             // type of service; ~0: not set
  uint32_t options;         // kCmReuseAddress ...
  CmRoute route;            // from kCmBound on
  CmConnection connection;  // kCmConnected
};
// kCmResolved: bound, with address and route resolved; kCmResolveRoute or kCmConnect may follow. kCmConnected
// requires a known remote_id; without one an identifier is restored as kCmResolved, or not at all.
inline constexpr uint32_t kCmIdle = 0, kCmBound = 1, kCmListening = 2, kCmConnected = 3, kCmResolved = 4;
// kCmFamilyOptionSet: the program has chosen whether kCmOwnFamilyOnly applies; otherwise the address decides,
// as at bind.
inline constexpr uint32_t kCmReuseAddress = 1, kCmOwnFamilyOnly = 2, kCmFamilyOptionSet = 4;
static_assert(sizeof(CmRestoreRequest) == 256);

}  // namespace verbena::protocol
