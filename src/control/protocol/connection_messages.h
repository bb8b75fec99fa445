// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/bytes.h"
#include "control/protocol/messages.h"

namespace verbena::protocol {

// The part of the agent protocol for connection management. It replaces the kernel's rdma_ucm for librdmacm.
// The agent has the state machines (management/cm/) and QP1. A program has event channels and identifiers
// (rdma_cm_id), and numbers both.
//
// Requests are sent after kHello like those in messages.h, and each gets one reply. Events are sent on
// channels. A channel is a SOCK_SEQPACKET socket pair that the program creates. The application's end is the
// descriptor that the application sees (rdma_event_channel::fd). The program sends the agent's end to the
// agent with kCmOpenChannel, and keeps a copy of it. So when an agent is killed, both ends and all
// undelivered events stay intact. The next agent gets a copy of the agent's end again. The program can also
// write its own events to the agent's end. The agent sends one CmEvent per message. It never blocks, and
// queues events until the socket is writable.
//
// The program numbers identifiers from 1 up. Identifiers of incoming requests are numbered by the agent, with
// kCmAgentsNumber set. A number is reused only after two billion others, and never while in use. Numbers are
// valid only on the program's connection to the agent. When the program's connection ends, the agent destroys
// the program's identifiers as by kCmDestroyId. Peers get a DREQ for established connections and a REJ for
// others, and ports become free.

// The maximum private data in bytes of any message: 224 in a DREP; a REP has at most 196.
inline constexpr size_t kCmPrivateBytes = 224;

// The parameters of one end of a connection that is being set up. rdma_connect() and rdma_accept() make them
// from an rdma_conn_param, for the CmConnectRequest to the agent. The connection manager in the agent writes
// them into the REQ or REP (management/cm/parameters.h). The peer's parameters come in a CmEvent, translated
// to our view: the peer's initiator depth is our responder resources. Values from outside may be arbitrary.
struct ConnectionParameters {
  uint32_t qpn;
  uint32_t qkey;        // only for UD: the accepting side's Q_Key
  uint32_t ece_vendor;  // 0 without enhanced connection establishment (ECE)
  uint32_t ece_options;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t flow_control;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
  uint8_t srq;
  uint8_t private_length;
  uint8_t reserved;
  uint8_t private_data[kCmPrivateBytes];

  ConstBytes data() const {
    return std::as_bytes(std::span(private_data)).first(std::min<size_t>(private_length, kCmPrivateBytes));
  }
  // The next three methods change the private data. If it would be too long, they return false and change
  // nothing.
  bool append(ConstBytes more) { return insert(data().size(), more); }
  bool prepend(ConstBytes more) { return insert(0, more); }
  bool set_data(ConstBytes whole) {
    if (whole.size() > kCmPrivateBytes) return false;
    private_length = 0;
    return append(whole);
  }

 private:
  bool insert(size_t at, ConstBytes more) {
    const size_t length = data().size();
    if (more.size() > kCmPrivateBytes - length) return false;
    if (more.empty()) return true;
    std::memmove(private_data + at + more.size(), private_data + at, length - at);
    std::memcpy(private_data + at, more.data(), more.size());
    private_length = static_cast<uint8_t>(length + more.size());
    return true;
  }
};
static_assert(sizeof(ConnectionParameters) == 248);
static_assert(std::is_trivial_v<ConnectionParameters>);

inline constexpr uint32_t kCmAgentsNumber = 0x80000000u;

// The requests and their replies, with descriptors in brackets; MessageType in messages.h has the numbers.
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

// The error text of a request that does not fit the identifier's state. librdmacm shows its users a more
// exact text instead, with the names of the state and of the call.
inline constexpr std::string_view kCmWrongState = "not in this state of the identifier";

// An IPv4 or IPv6 address and port, or no address if `family` is 0. An IPv4 address is in the first four
// bytes of `address`.
struct CmAddress {
  uint16_t family;    // AF_INET, AF_INET6, or 0 if there is no address
  uint16_t port;      // network byte order; 0 if there is none
  uint32_t scope_id;  // only for AF_INET6
  uint8_t address[16];
};
static_assert(sizeof(CmAddress) == 24);

// The path of an identifier's packets, as far as known, and the device to which the identifier is bound.
struct CmRoute {
  CmAddress source;
  CmAddress destination;
  char link[kLinkNameBytes];  // the ibv_device's name; empty if not bound to a device
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

// The parameters, other than the route, with which a program moves a connection's QP to RTR and RTS. The
// program reports them to a restarted agent, which needs them to end the connection.
struct CmConnection {
  uint32_t local_id;   // communication IDs (IBTA volume 1, 12.6)
  uint32_t remote_id;  // 0 if not known yet
  uint32_t remote_qpn;
  uint32_t send_psn;
  uint32_t receive_psn;
  uint32_t local_qpn;
  uint8_t ack_timeout;          // local ACK timeout: 4.096 us * 2^n
  uint8_t retry_count;          // RETRY_CNT of our requester
  uint8_t rnr_retry_count;      // RNR_RETRY of our requester
  uint8_t responder_resources;  // MAX_DEST_RD_ATOMIC
  uint8_t initiator_depth;      // MAX_QP_RD_ATOMIC
  uint8_t peer_cm_timeout;      // maximum response time of the peer's CM: 4.096 us * 2^n
  uint8_t is_active;            // 1 if this side sent the REQ
  uint8_t qp_type;              // enum ibv_qp_type
};
static_assert(sizeof(CmConnection) == 32);

// An rdma_cm event, as a message on an event channel's socket. The agent sends it, or the process itself
// does, with kCmFromProgram in `flags`.
struct CmEvent {
  static constexpr uint32_t kMagic = 0x65766372;
  uint32_t magic;
  uint32_t type;   // enum rdma_cm_event_type
  int32_t status;  // as rdma_cm_event::status: 0, a negative errno value, or the reason of a REJ
  uint32_t id;
  uint32_t listener;   // for CONNECT_REQUEST the listener's number, and `id` is a new number that the agent
                       // chose; else 0
  uint32_t multicast;  // for MULTICAST_*, CmJoinRequest::multicast
  CmConnection connection;
  CmRoute route;
  ConnectionParameters parameters;  // the peer's, translated to our view, as in rdma_get_cm_event(3)
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
  uint32_t events;  // number of events that the agent has sent for this identifier, including a listener's
                    // connection requests
  uint32_t reserved;
};
static_assert(sizeof(CmDestroyReply) == 24);

struct CmChannelRequest {
  MessageHeader header;
  uint32_t channel;  // numbered by the program
  // Only for kCmOpenChannel: tells the events of one agent from those of the next, because each agent numbers
  // identifiers from the beginning. The program increments this number for each new agent. The agent copies
  // it into each event of the channel.
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
  CmRoute route;  // with the chosen port in `source`, and the device if the address determines one
};
static_assert(sizeof(CmAddressReply) == 176);

struct CmResolveRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t timeout_ms;
  CmAddress source;  // if family is 0, chosen by the routing table
  CmAddress destination;
};
static_assert(sizeof(CmResolveRequest) == 72);

struct CmListenRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t backlog;  // 0 for the agent's maximum
};
static_assert(sizeof(CmListenRequest) == 24);

struct CmConnectRequest {
  MessageHeader header;
  uint32_t id;
  uint32_t refused;  // only for kCmAccept of UD: 0, or the reason to refuse (enum ib_cm_sidr_status)
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
  uint32_t multicast;   // the program's number for this membership
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
  // create.header is unused. The program chooses create.id, even if the former agent had numbered the
  // identifier.
  CmCreateRequest create;
  uint32_t state;  // kCmIdle, kCmBound, kCmListening, kCmConnected, kCmResolved
  uint32_t backlog;
  uint32_t tos;             // type of service; ~0 if not set
  uint32_t options;         // kCmReuseAddress ...
  CmRoute route;            // from kCmBound on
  CmConnection connection;  // kCmConnected
};
// Values of CmRestoreRequest::state. kCmResolved is a bound identifier with address and route resolved, for
// which kCmResolveRoute or kCmConnect may follow. kCmConnected requires a known remote_id. The program
// restores a connection without a remote_id as kCmResolved, or not at all.
inline constexpr uint32_t kCmIdle = 0, kCmBound = 1, kCmListening = 2, kCmConnected = 3, kCmResolved = 4;
// Flags of CmRestoreRequest::options. With kCmOwnFamilyOnly or kCmFamilyOptionSet, the program has set
// RDMA_OPTION_ID_AFONLY: kCmOwnFamilyOnly is its value. With neither, the address that the identifier is
// bound to decides, as for kCmBind.
inline constexpr uint32_t kCmReuseAddress = 1, kCmOwnFamilyOnly = 2, kCmFamilyOptionSet = 4;
static_assert(sizeof(CmRestoreRequest) == 256);

inline constexpr size_t kConnectionStates = 15;    // cm::State
inline constexpr size_t kConnectionMads = 11;      // cm::MessageType
inline constexpr size_t kDatagramDropReasons = 9;  // cm::DropReason

// The agent's counters of connection management, for `verbena status`.
struct CmStatus {
  // Numbers of programs' identifiers: all, listening, and waiting for neighbour resolution.
  uint32_t identifiers;
  uint32_t listening;
  uint32_t resolving;
  // Number of connections without a program: in TIMEWAIT, or refused a short while ago.
  uint32_t waiting;
  uint32_t connections[kConnectionStates];  // of programs, by cm::State
  uint32_t reserved;
  uint64_t sent[kConnectionMads];  // by cm::MessageType
  uint64_t received[kConnectionMads];
  uint64_t retransmitted;
  uint64_t duplicates;
  uint64_t timed_out;
  uint64_t stale_connections;
  uint64_t dropped[kDatagramDropReasons];  // by cm::DropReason
  uint64_t bad_qkey;                       // datagrams to QP1 with a wrong Q_Key
  uint64_t unknown_class;                  // datagrams to QP1 of an unknown management class
};

struct CmStatusReply {
  MessageHeader header;
  CmStatus status;
};
static_assert(sizeof(CmStatus) == 376);
static_assert(sizeof(CmStatusReply) == 392);

// A program's identifier (rdma_cm_id), as a record of the file that comes with a CmIdsReply.
struct CmIdRecord {
  int32_t pid;  // 0 if in a pid namespace invisible to the agent
  uint32_t uid;
  uint32_t number;        // unique among the agent's identifiers
  uint32_t device_index;  // kNoDevice if not bound to a device
  uint32_t local_qpn;     // 0 if unknown
  uint16_t port_space;    // enum rdma_port_space
  uint8_t qp_type;        // enum ibv_qp_type
  uint8_t state;          // the kernel's enum rdma_cm_state
  CmAddress source;       // with port
  CmAddress destination;
  char program[kProgramBytes];
};
static_assert(sizeof(CmIdRecord) == 136);
inline constexpr uint32_t kNoDevice = UINT32_MAX;

struct CmIdsReply {
  MessageHeader header;
  uint32_t count;     // records in the file
  uint32_t left_out;  // identifiers for which the file has no record
};
static_assert(sizeof(CmIdsReply) == 24);
inline constexpr uint32_t kMaxCmIdRecords = 1u << 16;

}  // namespace verbena::protocol
