// SPDX-License-Identifier: Apache-2.0
// Connections: made, refused, ended.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdmacm/calls.h"
#include "rdmacm/events.h"
#include "rdmacm/qp_attributes.h"

namespace {

using namespace verbena::rdmacm;
using verbena::protocol::CmConnectRequest;
using verbena::protocol::CmIdRequest;
using verbena::protocol::CmParameters;
using verbena::protocol::CmRejectRequest;
using verbena::protocol::MessageType;

// IBTA volume 1, 12.6.7.2: reasons of a REJ
constexpr uint8_t kConsumerReject = 28;
constexpr uint8_t kVendorOptionNotSupported = 35;

// What librdmacm checks; of port spaces other than TCP, nothing.
bool are_valid(const Identifier& identifier, const rdma_conn_param* parameters) {
  if (identifier.device == nullptr) return false;
  if (identifier.ps != RDMA_PS_TCP) return true;
  if (parameters == nullptr) return identifier.qp != nullptr;
  return (parameters->responder_resources == RDMA_MAX_RESP_RES ||
          parameters->responder_resources <= identifier.device->max_responder_resources) &&
         (parameters->initiator_depth == RDMA_MAX_INIT_DEPTH ||
          parameters->initiator_depth <= identifier.device->max_initiator_depth);
}

int add_private_data(CmParameters& to, const void* data, size_t length) {
  if (data == nullptr || length == 0) return 0;
  if (to.private_length + length > sizeof to.private_data) return EINVAL;
  std::memcpy(to.private_data + to.private_length, data, length);
  to.private_length = static_cast<uint8_t>(to.private_length + length);
  return 0;
}

// The QP is id->qp if there is one, else what the application says of its own.
int fill_parameters(CmParameters& to, const Identifier& identifier, const rdma_conn_param* from) {
  to.qpn = from != nullptr ? from->qp_num : 0;
  to.srq = from != nullptr ? from->srq : 0;
  if (identifier.qp != nullptr) {
    to.qpn = identifier.qp->qp_num;
    to.srq = identifier.qp->srq != nullptr ? 1 : 0;
  }
  to.qkey = RDMA_UDP_QKEY;
  to.responder_resources = identifier.responder_resources;
  to.initiator_depth = identifier.initiator_depth;
  to.retry_count = from != nullptr ? from->retry_count : 7;
  to.rnr_retry_count = from != nullptr ? from->rnr_retry_count : 7;
  to.flow_control = from != nullptr ? from->flow_control : 0;
  if (const int error =
          add_private_data(to, identifier.connect_data.data(), identifier.connect_data.size())) {
    return error;
  }
  return from != nullptr ? add_private_data(to, from->private_data, from->private_data_len) : 0;
}

int reject(rdma_cm_id* id, const void* data, uint8_t length, uint8_t reason) {
  return answer_for(id, [&](Identifier& identifier) {
    CmRejectRequest request{};
    request.reason = reason;
    if (data != nullptr) {
      if (length > sizeof request.private_data) return EINVAL;
      std::memcpy(request.private_data, data, length);
      request.private_length = length;
    }
    return error_of(identifier.process.agent.call(identifier, MessageType::kCmReject, request));
  });
}

// The least of what the peer asks for and the device can, unless the application says how much.
uint8_t agreed(uint8_t asked, uint8_t limit, bool said, uint8_t value) {
  return said ? value : std::min(asked, limit);
}

void agree_on_depths(Identifier& identifier, const rdma_conn_param* parameters) {
  const Device& device = *identifier.device;
  const bool says_depth = parameters != nullptr && parameters->initiator_depth != RDMA_MAX_INIT_DEPTH;
  const bool says_resources = parameters != nullptr && parameters->responder_resources != RDMA_MAX_RESP_RES;
  identifier.initiator_depth = agreed(identifier.initiator_depth, device.max_initiator_depth, says_depth,
                                      says_depth ? parameters->initiator_depth : 0);
  identifier.responder_resources =
      agreed(identifier.responder_resources, device.max_responder_resources, says_resources,
             says_resources ? parameters->responder_resources : 0);
}

int prepare_qp(Identifier& identifier) {
  if (identifier.is_datagram()) return 0;
  if (const int error = make_ready_to_receive(identifier, identifier.responder_resources)) return error;
  return make_ready_to_send(identifier, identifier.initiator_depth);
}

}  // namespace

VERBENA_ABI int rdma_connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  return answer_for(id, [&](Identifier& identifier) {
    if (!are_valid(identifier, parameters)) return EINVAL;
    identifier.initiator_depth = identifier.responder_resources = 0xff;
    agree_on_depths(identifier, parameters);
    CmConnectRequest request{};
    if (const int error = fill_parameters(request.parameters, identifier, parameters)) return error;
    request.parameters.ece_vendor = identifier.local_ece.vendor_id;
    request.parameters.ece_options = identifier.local_ece.options;
    identifier.connect_failed = false;
    const auto asked =
        identifier.process.agent.call(identifier, MessageType::kCmConnect, request, State::kConnecting);
    if (!asked) return asked.error().code;
    identifier.connect_data.clear();
    return complete(identifier);
  });
}

VERBENA_ABI int rdma_accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  return answer_for(id, [&](Identifier& identifier) {
    if (!are_valid(identifier, parameters) || (identifier.qp == nullptr && parameters == nullptr))
      return EINVAL;
    if (identifier.current_state() != State::kRequested) return EINVAL;
    agree_on_depths(identifier, parameters);
    CmConnectRequest request{};
    if (const int error = fill_parameters(request.parameters, identifier, parameters)) return error;
    // Under the vendor of the REQ, as the peer expects it.
    request.parameters.ece_vendor = identifier.remote_ece.vendor_id;
    request.parameters.ece_options = identifier.local_ece.options;
    if (const int error = prepare_qp(identifier)) return error;
    {
      const std::lock_guard lock(identifier.mutex);
      identifier.connection.responder_resources = identifier.responder_resources;
      identifier.connection.initiator_depth = identifier.initiator_depth;
      identifier.connection.local_qpn = request.parameters.qpn;
    }
    const auto sent =
        identifier.process.agent.call(identifier, MessageType::kCmAccept, request,
                                      identifier.is_datagram() ? State::kConnected : State::kAccepting);
    if (!sent) {
      make_unusable(identifier);
      return sent.error().code;
    }
    return identifier.is_datagram() ? 0 : complete(identifier);
  });
}

VERBENA_ABI int rdma_reject(rdma_cm_id* id, const void* data, uint8_t length) {
  return reject(id, data, length, kConsumerReject);
}

VERBENA_ABI int rdma_reject_ece(rdma_cm_id* id, const void* data, uint8_t length) {
  return reject(id, data, length, kVendorOptionNotSupported);
}

VERBENA_ABI int rdma_establish(rdma_cm_id* id) {
  return answer_for(id, [&](Identifier& identifier) {
    // To the agent it is the same as to accept, which a request must not be without its parameters.
    if (identifier.qp != nullptr || identifier.current_state() != State::kResponded) return EINVAL;
    return error_of(identifier.process.agent.call(identifier, MessageType::kCmAccept, CmConnectRequest{},
                                                  State::kConnected));
  });
}

VERBENA_ABI int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  return answer_for(id, [&](Identifier& identifier) {
    if (event != IBV_EVENT_COMM_EST) return EINVAL;
    return error_of(identifier.process.agent.call(identifier, MessageType::kCmEstablish, CmIdRequest{}));
  });
}

VERBENA_ABI int rdma_disconnect(rdma_cm_id* id) {
  return answer_for(id, [&](Identifier& identifier) {
    if (identifier.device == nullptr) return EINVAL;
    if (const int error = make_unusable(identifier)) return error;
    const State state = identifier.current_state();
    const bool stands = state == State::kConnected || state == State::kAccepting;
    const auto sent =
        identifier.process.agent.call(identifier, MessageType::kCmDisconnect, CmIdRequest{},
                                      stands ? std::optional(State::kDisconnecting) : std::nullopt);
    return sent ? complete(identifier) : sent.error().code;
  });
}
