// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/qp_attributes.h"

#include "libraries/librdmacm/addresses.h"
#include "libraries/librdmacm/calls.h"

namespace verbena::rdmacm {
namespace {

// The input for the attributes, copied under the identifier's lock.
struct Facts {
  State state;
  protocol::CmRoute path;
  protocol::CmConnection connection;
  std::optional<uint8_t> ack_timeout;
  ibv_qp_type type;
  uint8_t responder_resources;  // as requested by rdma_connect(), until the peer has answered
};

Facts facts_of(Identifier& identifier) {
  const std::lock_guard lock(identifier.mutex);
  return {identifier.state,       identifier.path,    identifier.connection,
          identifier.ack_timeout, identifier.qp_type, identifier.own.responder_resources};
}

// Whether the CM knows the connection, that is, from the REQ on.
bool in_connection(State state) {
  return (state >= State::kConnecting && state <= State::kConnected) || state == State::kFailed;
}

// Whether there was a connection about which the kernel's CM gives no attributes any more.
bool after_connection(State state) {
  return state == State::kDisconnecting || state == State::kOver || state == State::kLost;
}

bool has_peer(State state) {
  return in_connection(state) && state != State::kConnecting;
}

// Fills the attributes of a QP without a connection; the kernel gives the same for every state
// (cma_ib_init_qp_attr()).
int without_connection(const Facts& facts, ibv_qp_attr& attributes) {
  attributes.pkey_index = 0;
  attributes.port_num = kPort;
  if (facts.type == IBV_QPT_UD) {
    attributes.qkey = RDMA_UDP_QKEY;
    return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  }
  attributes.qp_access_flags = 0;
  return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

Result<int> to_init(const Facts& facts, ibv_qp_attr& attributes) {
  const uint8_t resources =
      facts.state == State::kConnecting ? facts.responder_resources : facts.connection.responder_resources;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (resources != 0) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attributes.pkey_index = 0;
  attributes.port_num = kPort;
  return IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
}

constexpr char kNoPeer[] = "id has no peer yet: RTR and RTS need its answer or its request";

Result<int> to_ready_to_receive(const Facts& facts, ibv_qp_attr& attributes) {
  if (!has_peer(facts.state)) return fail(because(EINVAL, kNoPeer));
  attributes.ah_attr = address_handle_of(facts.path);
  attributes.path_mtu = static_cast<ibv_mtu>(facts.path.path_mtu);
  attributes.dest_qp_num = facts.connection.remote_qpn;
  attributes.rq_psn = facts.connection.receive_psn;
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (facts.type == IBV_QPT_RC || facts.type == IBV_QPT_XRC_RECV) {
    attributes.max_dest_rd_atomic = facts.connection.responder_resources;
    attributes.min_rnr_timer = 0;
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  return mask;
}

Result<int> to_ready_to_send(const Facts& facts, ibv_qp_attr& attributes) {
  if (!has_peer(facts.state)) return fail(because(EINVAL, kNoPeer));
  attributes.sq_psn = facts.connection.send_psn;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (facts.type == IBV_QPT_RC || facts.type == IBV_QPT_XRC_SEND) {
    attributes.retry_cnt = facts.connection.retry_count;
    attributes.rnr_retry = facts.connection.rnr_retry_count;
    attributes.max_rd_atomic = facts.connection.initiator_depth;
    mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  if (facts.type != IBV_QPT_UC) {
    attributes.timeout = facts.ack_timeout.value_or(facts.connection.ack_timeout);
    mask |= IBV_QP_TIMEOUT;
  }
  return mask;
}

int modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask) {
  if (qp == nullptr) return 0;
  return verbs_error(ibv_modify_qp(qp, &attributes, mask));
}

}  // namespace

Result<int> qp_attributes(Identifier& identifier, ibv_qp_attr& attributes) {
  const ibv_qp_state wanted = attributes.qp_state;
  if (static_cast<unsigned>(wanted) > IBV_QPS_ERR)
    return fail(because(EINVAL, "there is no qp_state {}", static_cast<int>(wanted)));
  if (identifier.device == nullptr) return fail(because(EINVAL, kNoDevice));
  const Facts facts = facts_of(identifier);
  attributes = ibv_qp_attr{};
  attributes.qp_state = wanted;
  if (facts.type != IBV_QPT_UD && after_connection(facts.state))
    return fail(because(EINVAL, "the connection of id has ended"));
  if (facts.type == IBV_QPT_UD || !in_connection(facts.state)) return without_connection(facts, attributes);
  switch (wanted) {
    case IBV_QPS_INIT:
      return to_init(facts, attributes);
    case IBV_QPS_RTR:
      return to_ready_to_receive(facts, attributes);
    case IBV_QPS_RTS:
      return to_ready_to_send(facts, attributes);
    default:
      return fail(because(EINVAL, "qp_state {} is none of INIT, RTR and RTS", static_cast<int>(wanted)));
  }
}

int initialize(Identifier& identifier, ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  const auto mask = qp_attributes(identifier, attributes);
  if (!mask) return mask.error().code;
  if (const int error = modify(qp, attributes, *mask)) return error;
  if (!identifier.is_datagram()) return 0;
  // The next states need no data about a peer.
  attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  if (const int error = modify(qp, attributes, IBV_QP_STATE)) return error;
  attributes.qp_state = IBV_QPS_RTS;
  return modify(qp, attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int make_ready_to_receive(Identifier& identifier, uint8_t responder_resources) {
  if (identifier.qp == nullptr) return 0;
  // Repeats INIT, because rdma_create_qp() may have set access flags from before the connection.
  ibv_qp_attr attributes{};
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR}) {
    attributes.qp_state = state;
    const auto mask = qp_attributes(identifier, attributes);
    if (!mask) return mask.error().code;
    if (state == IBV_QPS_RTR && responder_resources != RDMA_MAX_RESP_RES) {
      attributes.max_dest_rd_atomic = responder_resources;
    }
    if (const int error = modify(identifier.qp, attributes, *mask)) return error;
  }
  return 0;
}

int make_ready_to_send(Identifier& identifier, uint8_t initiator_depth) {
  if (identifier.qp == nullptr) return 0;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  const auto mask = qp_attributes(identifier, attributes);
  if (!mask) return mask.error().code;
  if (initiator_depth != RDMA_MAX_INIT_DEPTH) attributes.max_rd_atomic = initiator_depth;
  return modify(identifier.qp, attributes, *mask);
}

int make_unusable(Identifier& identifier) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return modify(identifier.qp, attributes, IBV_QP_STATE);
}

namespace {

int query(ibv_qp* qp, ibv_ece& ece) {
  const int error = verbs_error(ibv_query_ece(qp, &ece));
  return error == EOPNOTSUPP ? 0 : error;
}

int set(ibv_qp* qp, ibv_ece ece) {
  const int error = verbs_error(ibv_set_ece(qp, &ece));
  return error == EOPNOTSUPP ? 0 : error;
}

// Stores the options that the QP accepted.
int store_options(Identifier& identifier, ibv_qp* qp) {
  ibv_ece ece{};
  if (const int error = query(qp, ece)) return error;
  identifier.local_ece.options = ece.options;
  return 0;
}

ibv_ece ece_of(const protocol::ConnectionParameters& parameters) {
  return {.vendor_id = parameters.ece_vendor, .options = parameters.ece_options, .comp_mask = 0};
}

ibv_ece nothing_of(uint32_t vendor) {
  return {.vendor_id = vendor, .options = 0, .comp_mask = 0};
}

}  // namespace

int begin_ece(Identifier& identifier, ibv_qp* qp) {
  ibv_ece ece{};
  if (const int error = query(qp, ece)) return error;
  identifier.local_ece = ece;
  identifier.local_ece.comp_mask = 0;
  const uint32_t remote = identifier.peers.ece_vendor;
  if (remote == 0) return 0;  // the QP is not for an incoming request
  return set(qp, remote == ece.vendor_id ? ece_of(identifier.peers) : nothing_of(ece.vendor_id));
}

int note_local_ece(Identifier& identifier, ibv_qp* qp) {
  return identifier.peers.ece_vendor != 0 ? store_options(identifier, qp) : 0;
}

int settle_ece(Identifier& identifier, const protocol::ConnectionParameters& answer) {
  const uint32_t own = identifier.local_ece.vendor_id;
  // The peer must use our vendor's options, or none.
  if (answer.ece_vendor != 0 && answer.ece_vendor != own) return EINVAL;
  identifier.peers = answer;
  return set(identifier.qp, answer.ece_vendor != 0 ? ece_of(answer) : nothing_of(own));
}

int read_back_ece(Identifier& identifier) {
  return store_options(identifier, identifier.qp);
}

}  // namespace verbena::rdmacm

VERBENA_ABI int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) {
  using namespace verbena::rdmacm;
  return answer([&] {
    if (id == nullptr) return because(EINVAL, "id is null");
    if (!Identifier::is_one(id)) return because(EINVAL, kNoIdentifier, verbena::ptr(id));
    if (attributes == nullptr || mask == nullptr) return because(EINVAL, "qp_attr or qp_attr_mask is null");
    auto result = qp_attributes(Identifier::of(id), *attributes);
    if (result) *mask = *result;
    return error_of(result);
  });
}

VERBENA_ABI int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  using namespace verbena::rdmacm;
  return answer_for(id, [&](Identifier& identifier) {
    if (identifier.qp != nullptr) return because(EINVAL, "id->qp is set: librdmacm negotiates ECE itself");
    if (ece == nullptr) return because(EINVAL, "ece is null");
    if (ece->vendor_id == 0 || ece->comp_mask != 0)
      return because(EINVAL, "ece has vendor_id {:#x} and comp_mask {:#x}", ece->vendor_id, ece->comp_mask);
    identifier.local_ece = *ece;
    return 0;
  });
}

VERBENA_ABI int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  using namespace verbena::rdmacm;
  return answer_for(id, [&](Identifier& identifier) {
    if (identifier.qp != nullptr) return because(EINVAL, "id->qp is set: librdmacm negotiates ECE itself");
    if (ece == nullptr) return because(EINVAL, "ece is null");
    *ece = ece_of(identifier.peers);
    return 0;
  });
}
