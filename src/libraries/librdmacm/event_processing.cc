// SPDX-License-Identifier: Apache-2.0
// The work of librdmacm for each kind of event before the application sees it.
#include "base/settle_context.h"
#include "libraries/librdmacm/addresses.h"
#include "libraries/librdmacm/events.h"
#include "libraries/librdmacm/process.h"
#include "libraries/librdmacm/qp_attributes.h"
#include "management/cm/messages.h"

namespace verbena::rdmacm {
namespace {

using protocol::CmEvent;

// The buffer must hold the longest private data that the agent may send.
static_assert(sizeof(Event::private_data) >= protocol::kCmPrivateBytes);

uint8_t copy_private_data(Event& event, const CmEvent& message, const void*& data) {
  const uint8_t length = message.parameters.private_length;
  if (length == 0) return 0;
  std::memcpy(event.private_data.data(), message.parameters.private_data, length);
  data = event.private_data.data();
  return length;
}

void copy_connection_parameters(Event& event, const CmEvent& message) {
  if ((message.flags & protocol::kCmHasParameters) == 0) return;
  const protocol::ConnectionParameters& from = message.parameters;
  rdma_conn_param& to = event.param.conn;
  to.private_data_len = copy_private_data(event, message, to.private_data);
  to.responder_resources = from.responder_resources;
  to.initiator_depth = from.initiator_depth;
  to.flow_control = from.flow_control;
  to.retry_count = from.retry_count;
  to.rnr_retry_count = from.rnr_retry_count;
  to.srq = from.srq;
  to.qp_num = from.qpn;
}

void copy_datagram_parameters(Event& event, const CmEvent& message) {
  rdma_ud_param& to = event.param.ud;
  if ((message.flags & protocol::kCmHasParameters) != 0) {
    to.private_data_len = copy_private_data(event, message, to.private_data);
    to.qp_num = message.parameters.qpn;
    to.qkey = message.parameters.qkey;
  }
  if ((message.flags & protocol::kCmHasRoute) != 0) to.ah_attr = address_handle_of(message.route);
}

void copy_parameters(Event& event, const CmEvent& message, const Identifier& identifier) {
  if (identifier.is_datagram()) {
    copy_datagram_parameters(event, message);
  } else {
    copy_connection_parameters(event, message);
  }
}

// Stores the message's connection data, and sets the next state.
void advance(Identifier& identifier, const CmEvent& message, State next) {
  const std::lock_guard lock(identifier.mutex);
  if ((message.flags & protocol::kCmHasConnection) != 0) identifier.connection = message.connection;
  identifier.state = next;
}

void fail_event(Event& event, rdma_cm_event_type type, int code) {
  event.event = type;
  event.status = -code;
}

bool address_resolved(Event& event, const CmEvent& message, Identifier& identifier) {
  identifier.set_state(State::kAddressResolved);
  const auto set = set_path(identifier, message.route);
  if (!set) fail_event(event, RDMA_CM_EVENT_ADDR_ERROR, set.error().code);
  return true;
}

bool address_error(Event&, const CmEvent&, Identifier& identifier) {
  const std::lock_guard lock(identifier.mutex);
  identifier.state = identifier.path.source.family != 0 ? State::kBound : State::kIdle;
  return true;
}

bool route_resolved(Event& event, const CmEvent& message, Identifier& identifier) {
  identifier.set_state(State::kResolved);
  auto set =
      (message.flags & protocol::kCmHasRoute) != 0 ? set_path(identifier, message.route) : Result<void>();
  if (set) set = set_path_record(identifier);
  if (!set) fail_event(event, RDMA_CM_EVENT_ROUTE_ERROR, set.error().code);
  return true;
}

bool route_error(Event&, const CmEvent&, Identifier& identifier) {
  identifier.set_state(State::kAddressResolved);
  return true;
}

bool connect_request(Event& event, const CmEvent& message, Identifier& listener) {
  auto request = adopt_request(listener, message);
  if (!request) {
    log_warning("a connection request is lost: errno {}", request.error().code);
    abandon_request(listener.process, message);
    return false;
  }
  copy_parameters(event, message, listener);
  event.listen_id = &listener;
  event.id = *request;
  return true;
}

// The steps, in this order, that establish an active connection after the peer's reply.
struct ConnectionStep {
  const char* name;
  int (*take)(Identifier&, const CmEvent&);  // 0, or an errno value
};
constexpr ConnectionStep kConnectionSteps[] = {
    {"agreeing on the vendor's options (ECE)",
     [](Identifier& identifier, const CmEvent& message) {
       return settle_ece(identifier, message.parameters);
     }},
    {"moving the QP to RTR",
     [](Identifier& identifier, const CmEvent&) {
       return make_ready_to_receive(identifier, RDMA_MAX_RESP_RES);
     }},
    {"moving the QP to RTS",
     [](Identifier& identifier, const CmEvent&) {
       return make_ready_to_send(identifier, RDMA_MAX_INIT_DEPTH);
     }},
    {"telling the peer that the connection is ready (RTU)",
     [](Identifier& identifier, const CmEvent&) {
       return error_of(identifier.process.agent.call(identifier, protocol::MessageType::kCmAccept,
                                                     protocol::CmConnectRequest{}, State::kConnected));
     }},
    {"reading the vendor's options (ECE)",
     [](Identifier& identifier, const CmEvent&) { return read_back_ece(identifier); }},
};

int finish_connection(Identifier& identifier, const CmEvent& message) {
  for (const ConnectionStep& step : kConnectionSteps) {
    const int error = step.take(identifier, message);
    if (error == 0) continue;
    log_error("rdma_cm_id {}, QP {:#x}, connecting with QP {:#x}: {} failed: {} (errno {})",
              verbena::ptr(&identifier), identifier.qp->qp_num, message.connection.remote_qpn, step.name,
              std::strerror(error), error);
    return error;
  }
  return 0;
}

// Rejects the connection, so that the peer does not wait for an RTU; the kernel's rdma_cm does so, too
// (cma_rep_recv()). If the RTU was sent already, the connection is established and must be disconnected.
void give_up(Identifier& identifier) {
  make_unusable(identifier);
  AgentLink& agent = identifier.process.agent;
  protocol::CmRejectRequest request{};
  request.reason = static_cast<uint8_t>(cm::RejReason::kConsumer);
  if (agent.call(identifier, protocol::MessageType::kCmReject, request)) return;
  [[maybe_unused]] const auto ended =
      agent.call(identifier, protocol::MessageType::kCmDisconnect, protocol::CmIdRequest{});
}

bool connect_response(Event& event, const CmEvent& message, Identifier& identifier) {
  copy_connection_parameters(event, message);
  if (identifier.current_state() != State::kConnecting) return false;
  advance(identifier, message, State::kResponded);
  if (identifier.qp == nullptr) {
    identifier.peers = message.parameters;
    return true;
  }
  event.event = RDMA_CM_EVENT_ESTABLISHED;
  if (const int error = finish_connection(identifier, message)) {
    identifier.set_state(State::kFailed);
    give_up(identifier);
    fail_event(event, RDMA_CM_EVENT_CONNECT_ERROR, error);
  }
  return true;
}

bool established(Event& event, const CmEvent& message, Identifier& identifier) {
  copy_parameters(event, message, identifier);
  const State state = identifier.current_state();
  if (state != State::kDisconnecting && state != State::kOver)
    advance(identifier, message, State::kConnected);
  return true;
}

bool rejected(Event& event, const CmEvent& message, Identifier& identifier) {
  if (identifier.current_state() == State::kFailed) return false;
  copy_connection_parameters(event, message);
  identifier.set_state(State::kOver);
  make_unusable(identifier);
  return true;
}

// First completes the messages that the peer sent before its DREQ: the program may move its QP to ERR on this
// event, and must not lose them. A hardware adapter has completed them by then.
bool disconnected(Event& event, const CmEvent& message, Identifier& identifier) {
  if (identifier.current_state() == State::kFailed) return false;
  copy_connection_parameters(event, message);
  if (identifier.verbs != nullptr && verbena_settle_context != nullptr)
    verbena_settle_context(identifier.verbs);
  if (identifier.current_state() != State::kLost) identifier.set_state(State::kOver);
  return true;
}

bool not_connected(Event& event, const CmEvent& message, Identifier& identifier) {
  copy_parameters(event, message, identifier);
  identifier.set_state(State::kOver);
  return true;
}

bool nothing_to_do(Event& event, const CmEvent& message, Identifier& identifier) {
  copy_parameters(event, message, identifier);
  return true;
}

// Attaches the QP once the group's GID is known; a send-only member needs no attachment.
bool multicast_join(Event& event, const CmEvent& message, Identifier& identifier) {
  copy_datagram_parameters(event, message);
  ibv_gid group{};
  uint16_t lid = 0;
  uint32_t flags = 0;
  {
    const std::lock_guard lock(identifier.mutex);
    Membership* const found = identifier.find_membership(message.multicast);
    if (found == nullptr || found->joined) return false;
    found->joined = true;
    found->group = event.param.ud.ah_attr.grh.dgid;
    found->lid = event.param.ud.ah_attr.dlid;
    event.param.ud.private_data = found->context;
    group = found->group;
    lid = found->lid;
    flags = found->join_flags;
  }
  if (identifier.qp == nullptr || flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) return true;
  if (const int error = verbs_error(ibv_attach_mcast(identifier.qp, &group, lid))) {
    fail_event(event, RDMA_CM_EVENT_MULTICAST_ERROR, error);
  }
  return true;
}

bool multicast_error(Event& event, const CmEvent& message, Identifier& identifier) {
  const std::lock_guard lock(identifier.mutex);
  const Membership* const found = identifier.find_membership(message.multicast);
  if (found != nullptr) event.param.ud.private_data = found->context;
  return true;
}

bool user_event(Event& event, const CmEvent& message, Identifier&) {
  uint64_t argument;
  std::memcpy(&argument, message.parameters.private_data, sizeof argument);
  std::memcpy(&event.param, &argument, sizeof argument);
  return true;
}

using Handler = bool (*)(Event&, const CmEvent&, Identifier&);
struct Row {
  int type;
  Handler handler;
};
constexpr Row kRows[] = {
    {RDMA_CM_EVENT_ADDR_RESOLVED, address_resolved},
    {RDMA_CM_EVENT_ADDR_ERROR, address_error},
    {RDMA_CM_EVENT_ROUTE_RESOLVED, route_resolved},
    {RDMA_CM_EVENT_ROUTE_ERROR, route_error},
    {RDMA_CM_EVENT_CONNECT_REQUEST, connect_request},
    {RDMA_CM_EVENT_CONNECT_RESPONSE, connect_response},
    {RDMA_CM_EVENT_CONNECT_ERROR, not_connected},
    {RDMA_CM_EVENT_UNREACHABLE, not_connected},
    {RDMA_CM_EVENT_REJECTED, rejected},
    {RDMA_CM_EVENT_ESTABLISHED, established},
    {RDMA_CM_EVENT_DISCONNECTED, disconnected},
    {RDMA_CM_EVENT_DEVICE_REMOVAL, nothing_to_do},
    {RDMA_CM_EVENT_MULTICAST_JOIN, multicast_join},
    {RDMA_CM_EVENT_MULTICAST_ERROR, multicast_error},
    {RDMA_CM_EVENT_ADDR_CHANGE, nothing_to_do},
    {RDMA_CM_EVENT_TIMEWAIT_EXIT, nothing_to_do},
    {kAddressInformationResolved, user_event},
    {kUserEvent, user_event},
};

}  // namespace

bool process(Event& event, const CmEvent& message, Identifier& identifier) {
  const std::lock_guard lock(identifier.processing);
  for (const Row& row : kRows) {
    if (static_cast<uint32_t>(row.type) == message.type) return row.handler(event, message, identifier);
  }
  log_warning("the agent sent an event of type {}", message.type);
  return false;
}

}  // namespace verbena::rdmacm
