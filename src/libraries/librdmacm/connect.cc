// SPDX-License-Identifier: Apache-2.0
// Binding, resolving addresses and routes, listening, options; establishing, rejecting and ending
// connections.
#include "base/format.h"
#include "libraries/librdmacm/addresses.h"
#include "libraries/librdmacm/calls.h"
#include "libraries/librdmacm/qp_attributes.h"
#include "management/cm/messages.h"

namespace {

using namespace verbena::rdmacm;
using verbena::ConstBytes;
using verbena::Result;
using verbena::cm::RejReason;
using verbena::protocol::CmAddressReply;
using verbena::protocol::CmConnectRequest;
using verbena::protocol::CmIdRequest;
using verbena::protocol::CmRejectRequest;
using verbena::protocol::ConnectionParameters;
using verbena::protocol::MessageType;

// Stores the addresses in the agent's reply, without waiting for the event.
int take_over(Identifier& identifier, const Result<CmAddressReply>& reply) {
  if (!reply) return reply.error().code;
  return error_of(set_path(identifier, reply->route));
}

std::string wrong_family(const sockaddr* address) {
  if (address == nullptr) return "is null";
  return verbena::format("is of family {}, and only AF_INET ({}) and AF_INET6 ({}) are supported",
                         address->sa_family, AF_INET, AF_INET6);
}

}  // namespace

VERBENA_ABI int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  return answer_for(id, [&](Identifier& identifier) {
    if (address_length(address) == 0) return because(EINVAL, "addr {}", wrong_family(address));
    verbena::protocol::CmBindRequest request{};
    request.address = address_of(address);
    return take_over(identifier, identifier.process.agent.call<CmAddressReply>(
                                     identifier, MessageType::kCmBind, request, State::kBound));
  });
}

VERBENA_ABI int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms) {
  return answer_for(id, [&](Identifier& identifier) {
    const socklen_t length = address_length(destination);
    if (length == 0) return because(EINVAL, "dst_addr {}", wrong_family(destination));
    if (source != nullptr && address_length(source) == 0)
      return because(EINVAL, "src_addr {}", wrong_family(source));
    verbena::protocol::CmResolveRequest request{};
    request.timeout_ms = static_cast<uint32_t>(timeout_ms);
    request.source = address_of(source);
    request.destination = address_of(destination);
    // Preliminary: the event has more exact data, and may arrive before the reply.
    std::memcpy(&identifier.route.addr.dst_storage, destination, length);
    const auto asked = identifier.process.agent.call<CmAddressReply>(
        identifier, MessageType::kCmResolveAddress, request, State::kResolvingAddress);
    return asked ? complete(identifier) : asked.error().code;
  });
}

VERBENA_ABI int rdma_resolve_route(rdma_cm_id* id, int) {
  return answer_for(id, [&](Identifier& identifier) {
    const auto asked = identifier.process.agent.call(identifier, MessageType::kCmResolveRoute, CmIdRequest{},
                                                     State::kResolvingRoute);
    return asked ? complete(identifier) : asked.error().code;
  });
}

VERBENA_ABI int rdma_listen(rdma_cm_id* id, int backlog) {
  return answer_for(id, [&](Identifier& identifier) {
    verbena::protocol::CmListenRequest request{};
    request.backlog = backlog > 0 ? static_cast<uint32_t>(backlog) : 0;
    {
      const std::lock_guard lock(identifier.mutex);
      identifier.backlog = request.backlog;
    }
    return take_over(identifier, identifier.process.agent.call<CmAddressReply>(
                                     identifier, MessageType::kCmListen, request, State::kListening));
  });
}

VERBENA_ABI in_port_t rdma_get_src_port(rdma_cm_id* id) {
  return id != nullptr ? port_of(&id->route.addr.src_addr) : 0;
}

VERBENA_ABI in_port_t rdma_get_dst_port(rdma_cm_id* id) {
  return id != nullptr ? port_of(&id->route.addr.dst_addr) : 0;
}

namespace {

// Returns the option's value if it has the size that rdma_set_option(3) requires.
template <class T>
std::optional<uint32_t> value_of(const void* value, size_t length) {
  T number;
  if (value == nullptr || length != sizeof number) return std::nullopt;
  std::memcpy(&number, value, sizeof number);
  return static_cast<uint32_t>(number);
}

struct Row {
  int name;
  std::optional<uint32_t> (*value_of)(const void*, size_t);
  void (*keep)(Identifier&, uint32_t);  // stores it, to restore it at another agent
};
constexpr Row kRows[] = {
    {RDMA_OPTION_ID_TOS, value_of<uint8_t>,
     [](Identifier& id, uint32_t value) { id.type_of_service = static_cast<uint8_t>(value); }},
    {RDMA_OPTION_ID_REUSEADDR, value_of<int>,
     [](Identifier& id, uint32_t value) { id.reuse_address = value != 0; }},
    {RDMA_OPTION_ID_AFONLY, value_of<int>,
     [](Identifier& id, uint32_t value) { id.own_family_only = value != 0; }},
    {RDMA_OPTION_ID_ACK_TIMEOUT, value_of<uint8_t>,
     [](Identifier& id, uint32_t value) { id.ack_timeout = static_cast<uint8_t>(value); }},
};

int set_option(Identifier& identifier, int name, const void* value, size_t length) {
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    const auto number = row.value_of(value, length);
    if (!number) return because(EINVAL, "option {}: optval is null, or optlen {} is wrong", name, length);
    verbena::protocol::CmOptionRequest request{};
    request.option = static_cast<uint32_t>(name);
    request.value = *number;
    const auto set = identifier.process.agent.call(identifier, MessageType::kCmSetOption, request);
    if (!set) return set.error().code;
    const std::lock_guard lock(identifier.mutex);
    row.keep(identifier, *number);
    return 0;
  }
  return because(ENOSYS, "there is no option {} of RDMA_OPTION_ID (rdma_set_option(3))", name);
}

}  // namespace

// Supports RDMA_OPTION_ID only: RDMA_OPTION_IB is for paths from an InfiniBand subnet administrator.
VERBENA_ABI int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, size_t length) {
  return answer_for(id, [&](Identifier& identifier) {
    if (level != RDMA_OPTION_ID)
      return because(ENOSYS, "level {} is not RDMA_OPTION_ID; options of RDMA_OPTION_IB are for InfiniBand",
                     level);
    return set_option(identifier, name, value, length);
  });
}

namespace {

// Returns the parameters for a program that passes none.
constexpr rdma_conn_param defaults() {
  rdma_conn_param defaults{};
  defaults.initiator_depth = RDMA_MAX_INIT_DEPTH;
  defaults.responder_resources = RDMA_MAX_RESP_RES;
  defaults.retry_count = defaults.rnr_retry_count = 7;
  return defaults;
}
constexpr rdma_conn_param kDefaults = defaults();

constexpr char kNoQp[] = "conn_param is null, and id has no queue pair: rdma_create_qp() makes one";

// Checks what rdma-core's librdmacm checks: nothing for port spaces other than TCP. Returns 0 or EINVAL.
int check(const Identifier& identifier, const rdma_conn_param* parameters) {
  if (identifier.device == nullptr) return because(EINVAL, kNoDevice);
  if (identifier.ps != RDMA_PS_TCP) return 0;
  if (parameters == nullptr) return identifier.qp != nullptr ? 0 : because(EINVAL, kNoQp);
  const Device& device = *identifier.device;
  if (parameters->responder_resources != RDMA_MAX_RESP_RES &&
      parameters->responder_resources > device.max_responder_resources) {
    return because(EINVAL, "responder_resources {} exceeds the device's max_qp_rd_atom {}",
                   parameters->responder_resources, device.max_responder_resources);
  }
  if (parameters->initiator_depth != RDMA_MAX_INIT_DEPTH &&
      parameters->initiator_depth > device.max_initiator_depth) {
    return because(EINVAL, "initiator_depth {} exceeds the device's max_qp_init_rd_atom {}",
                   parameters->initiator_depth, device.max_initiator_depth);
  }
  return 0;
}

ConstBytes bytes_of(const void* data, size_t length) {
  return data != nullptr ? ConstBytes(static_cast<const std::byte*>(data), length) : ConstBytes();
}

// Returns the application's value if it gave one, else the lesser of the peer's request and the device's
// limit.
uint8_t agreed(uint8_t asked, uint8_t limit, bool said, uint8_t value) {
  return said ? value : std::min(asked, limit);
}

// Returns our parameters for a peer that has asked for `asked`; a first request passes the maximum. The QP is
// id->qp or, if that is null, the QP that the application names. EINVAL if there is too much private data.
Result<ConnectionParameters> own_parameters(const Identifier& identifier, const rdma_conn_param* from,
                                            const ConnectionParameters& asked) {
  const rdma_conn_param wanted = from != nullptr ? *from : kDefaults;
  const Device& device = *identifier.device;
  ConnectionParameters own{};
  own.qpn = wanted.qp_num;
  own.srq = wanted.srq;
  if (identifier.qp != nullptr) {
    own.qpn = identifier.qp->qp_num;
    own.srq = identifier.qp->srq != nullptr ? 1 : 0;
  }
  own.qkey = RDMA_UDP_QKEY;
  own.initiator_depth = agreed(asked.initiator_depth, device.max_initiator_depth,
                               wanted.initiator_depth != RDMA_MAX_INIT_DEPTH, wanted.initiator_depth);
  own.responder_resources =
      agreed(asked.responder_resources, device.max_responder_resources,
             wanted.responder_resources != RDMA_MAX_RESP_RES, wanted.responder_resources);
  own.retry_count = wanted.retry_count;
  own.rnr_retry_count = wanted.rnr_retry_count;
  own.flow_control = wanted.flow_control;
  if (!own.set_data(identifier.connect_data) ||
      !own.append(bytes_of(wanted.private_data, wanted.private_data_len))) {
    return verbena::fail(because(EINVAL, "private data of {} bytes exceeds what any message has room for, {}",
                                 wanted.private_data_len + identifier.connect_data.size(),
                                 verbena::protocol::kCmPrivateBytes));
  }
  return own;
}

int reject(rdma_cm_id* id, const void* data, uint8_t length, RejReason reason,
           const char* call = __builtin_FUNCTION()) {
  return answer_for(
      id,
      [&](Identifier& identifier) {
        CmRejectRequest request{};
        request.reason = static_cast<uint8_t>(reason);
        if (data != nullptr) {
          if (length > sizeof request.private_data)
            return because(EINVAL, "private data of {} bytes exceeds what any message has room for, {}",
                           length, sizeof request.private_data);
          std::memcpy(request.private_data, data, length);
          request.private_length = length;
        }
        return error_of(
            identifier.process.agent.call(identifier, MessageType::kCmReject, request, State::kOver));
      },
      call);
}

// Rejects a request that cannot be accepted, like the kernel's rdma_accept(), so that the peer does not wait
// for a reply. The agent itself rejects requests for errors that it finds.
int reject_instead(Identifier& identifier, int error) {
  const KeptReason kept;
  make_unusable(identifier);
  CmRejectRequest request{};
  request.reason = static_cast<uint8_t>(RejReason::kConsumer);
  [[maybe_unused]] const auto sent =
      identifier.process.agent.call(identifier, MessageType::kCmReject, request, State::kOver);
  return error;
}

int prepare_qp(Identifier& identifier) {
  if (identifier.is_datagram()) return 0;
  if (const int error = make_ready_to_receive(identifier, identifier.own.responder_resources)) return error;
  return make_ready_to_send(identifier, identifier.own.initiator_depth);
}

}  // namespace

VERBENA_ABI int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  return answer_for(id, [&](Identifier& identifier) {
    if (const int error = check(identifier, parameters)) return error;
    ConnectionParameters most{};
    most.initiator_depth = most.responder_resources = 0xff;
    const auto own = own_parameters(identifier, parameters, most);
    if (!own) return own.error().code;
    identifier.own = *own;
    identifier.own.ece_vendor = identifier.local_ece.vendor_id;
    identifier.own.ece_options = identifier.local_ece.options;
    CmConnectRequest request{};
    request.parameters = identifier.own;
    const auto asked =
        identifier.process.agent.call(identifier, MessageType::kCmConnect, request, State::kConnecting);
    if (!asked) return asked.error().code;
    identifier.connect_data.clear();
    return complete(identifier);
  });
}

VERBENA_ABI int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  return answer_for(id, [&](Identifier& identifier) {
    if (const int error = check(identifier, parameters)) return error;
    if (identifier.qp == nullptr && parameters == nullptr) return because(EINVAL, kNoQp);
    if (identifier.current_state() != State::kRequested) return wrong_state();
    const auto own = own_parameters(identifier, parameters, identifier.peers);
    if (!own) return reject_instead(identifier, own.error().code);
    identifier.own = *own;
    // The reply uses the vendor of the REQ, as the peer expects.
    identifier.own.ece_vendor = identifier.peers.ece_vendor;
    identifier.own.ece_options = identifier.local_ece.options;
    CmConnectRequest request{};
    request.parameters = identifier.own;
    if (const int error = prepare_qp(identifier)) return reject_instead(identifier, error);
    {
      const std::lock_guard lock(identifier.mutex);
      identifier.connection.responder_resources = identifier.own.responder_resources;
      identifier.connection.initiator_depth = identifier.own.initiator_depth;
      identifier.connection.local_qpn = request.parameters.qpn;
    }
    const auto sent =
        identifier.process.agent.call(identifier, MessageType::kCmAccept, request,
                                      identifier.is_datagram() ? State::kConnected : State::kAccepting);
    if (!sent) {
      const KeptReason kept;
      make_unusable(identifier);
      // The agent has rejected the request, unless the agent has died.
      if (identifier.current_state() == State::kRequested) identifier.set_state(State::kOver);
      return sent.error().code;
    }
    return identifier.is_datagram() ? 0 : complete(identifier);
  });
}

VERBENA_ABI int rdma_reject(rdma_cm_id* id, const void* data, uint8_t length) {
  return reject(id, data, length, RejReason::kConsumer);
}

VERBENA_ABI int rdma_reject_ece(rdma_cm_id* id, const void* data, uint8_t length) {
  return reject(id, data, length, RejReason::kVendorOptionNotSupported);
}

VERBENA_ABI int rdma_establish(rdma_cm_id* id) {
  return answer_for(id, [&](Identifier& identifier) {
    // The agent treats this as an accept. An incoming request must not get here: it would be accepted without
    // parameters.
    if (identifier.qp != nullptr || identifier.current_state() != State::kResponded) return wrong_state();
    return error_of(identifier.process.agent.call(identifier, MessageType::kCmAccept, CmConnectRequest{},
                                                  State::kConnected));
  });
}

VERBENA_ABI int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  return answer_for(id, [&](Identifier& identifier) {
    if (event != IBV_EVENT_COMM_EST)
      return because(EINVAL, "event {} is not IBV_EVENT_COMM_EST", static_cast<int>(event));
    return error_of(identifier.process.agent.call(identifier, MessageType::kCmEstablish, CmIdRequest{}));
  });
}

VERBENA_ABI int rdma_disconnect(rdma_cm_id* id) {
  return answer_for(id, [&](Identifier& identifier) {
    if (identifier.device == nullptr) return because(EINVAL, kNoDevice);
    if (const int error = make_unusable(identifier)) return error;
    const State state = identifier.current_state();
    const bool stands = state == State::kConnected || state == State::kAccepting;
    const auto sent =
        identifier.process.agent.call(identifier, MessageType::kCmDisconnect, CmIdRequest{},
                                      stands ? std::optional(State::kDisconnecting) : std::nullopt);
    return sent ? complete(identifier) : sent.error().code;
  });
}
