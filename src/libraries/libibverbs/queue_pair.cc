// SPDX-License-Identifier: Apache-2.0
// Completion channels and queues, queue pairs and shared receive queues.
#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/compat_1_0.h"

namespace verbena::verbs {
namespace {

constexpr uint32_t kKnownMask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE |
                                IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

// Copies the fields with which both structs begin.
template <class Attr>
ibv_qp_init_attr_ex common_part(const Attr& attr) {
  ibv_qp_init_attr_ex common{};
  common.qp_context = attr.qp_context;
  common.send_cq = attr.send_cq;
  common.recv_cq = attr.recv_cq;
  common.srq = attr.srq;
  common.cap = attr.cap;
  common.qp_type = attr.qp_type;
  common.sq_sig_all = attr.sq_sig_all;
  return common;
}

ibv_qp_init_attr_ex only_what_is_there(const ibv_qp_init_attr_ex& attr) {
  ibv_qp_init_attr_ex there = common_part(attr);
  const uint32_t mask = there.comp_mask = attr.comp_mask;
  if (mask & IBV_QP_INIT_ATTR_PD) there.pd = attr.pd;
  if (mask & IBV_QP_INIT_ATTR_XRCD) there.xrcd = attr.xrcd;
  if (mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) {
    there.create_flags = attr.create_flags;
    if (attr.create_flags & IBV_QP_CREATE_SOURCE_QPN) there.source_qpn = attr.source_qpn;
  }
  if (mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) there.max_tso_header = attr.max_tso_header;
  if (mask & IBV_QP_INIT_ATTR_IND_TABLE) there.rwq_ind_tbl = attr.rwq_ind_tbl;
  if (mask & IBV_QP_INIT_ATTR_RX_HASH) there.rx_hash_conf = attr.rx_hash_conf;
  if (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) there.send_ops_flags = attr.send_ops_flags;
  return there;
}

}  // namespace

Result<ibv_qp*> create_qp(provider::Context& context, ibv_qp_init_attr_ex& attr) {
  if ((attr.comp_mask & ~kKnownMask) != 0) return fail(EOPNOTSUPP);
  ibv_qp_init_attr_ex wanted = only_what_is_there(attr);
  auto qp = context.create_qp(&wanted);
  if (qp) attr.cap = wanted.cap;
  return qp;
}

}  // namespace verbena::verbs

using namespace verbena::verbs;
using verbena::Result;

// Exists in one version only, so programs of the 1.0 ABI also call it, with a 1.0 context.
VERBENA_ABI ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return call(compat_1_0::current_context(context),
              [](auto& provider) { return provider.create_comp_channel(); });
}

VERBENA_FORWARD(int, ibv_destroy_comp_channel, (ibv_comp_channel * channel), destroy, channel,
                destroy_comp_channel(channel))

VERBENA_ABI ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                                  int comp_vector) {
  return call(context,
              [&](auto& provider) { return provider.create_cq(cqe, cq_context, channel, comp_vector); });
}

VERBENA_FORWARD(int, ibv_resize_cq, (ibv_cq * cq, int cqe), call, cq, resize_cq(cq, cqe))
VERBENA_FORWARD(int, ibv_destroy_cq, (ibv_cq * cq), destroy, cq, destroy_cq(cq))
VERBENA_FORWARD(int, ibv_get_cq_event, (ibv_comp_channel * channel, ibv_cq** cq, void** cq_context),
                call_minus_one, channel, get_cq_event(channel, cq, cq_context))
VERBENA_FORWARD(void, ibv_ack_cq_events, (ibv_cq * cq, unsigned count), on_owner, cq,
                ack_cq_events(cq, count))

// The caller's struct may be an ibv_qp_init_attr_ex that verbs.h passes as this type, or may end after the
// common fields: only those are read.
VERBENA_ABI ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return call(pd, {"qp_init_attr", attr}, [&](auto& provider) {
    ibv_qp_init_attr_ex wanted = common_part(*attr);
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    wanted.pd = pd;
    auto qp = provider.create_qp(&wanted);
    if (qp) attr->cap = wanted.cap;
    return qp;
  });
}

VERBENA_ABI ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return call(qp, [&](auto& provider) -> Result<ibv_qp_ex*> {
    return provider.qp_to_qp_ex(qp);  // null without errno: the QP was made without the extended interface
  });
}

VERBENA_ABI int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  return call(qp, [&](auto& provider) {
    const int code = provider.query_qp(qp, attr, mask, init_attr);
    if (code == 0 && (mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    return code;
  });
}

VERBENA_ABI int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return call(qp, [&](auto& provider) {
    const int code = provider.modify_qp(qp, attr, mask);
    if (code == 0 && (mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    return code;
  });
}

VERBENA_FORWARD(int, ibv_destroy_qp, (ibv_qp * qp), destroy, qp, destroy_qp(qp))

// Returns that no order is guaranteed: several instructions copy a payload.
VERBENA_ABI int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) {
  return 0;
}

// Fails: enhanced connection establishment negotiates vendor features, and there is no vendor here.
VERBENA_ABI int ibv_set_ece(ibv_qp*, ibv_ece*) {
  return answer_code([] { return EOPNOTSUPP; });
}

VERBENA_ABI int ibv_query_ece(ibv_qp*, ibv_ece*) {
  return answer_code([] { return EOPNOTSUPP; });
}

VERBENA_FORWARD(int, ibv_attach_mcast, (ibv_qp * qp, const ibv_gid* gid, uint16_t lid), call, qp,
                attach_mcast(qp, gid, lid))
VERBENA_FORWARD(int, ibv_detach_mcast, (ibv_qp * qp, const ibv_gid* gid, uint16_t lid), call, qp,
                detach_mcast(qp, gid, lid))

// ---- shared receive queues

VERBENA_ABI ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return call(pd, {"srq_init_attr", attr}, [&](auto& provider) {
    ibv_srq_init_attr_ex wanted{};
    wanted.srq_context = attr->srq_context;
    wanted.attr = attr->attr;
    wanted.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
    wanted.srq_type = IBV_SRQT_BASIC;
    wanted.pd = pd;
    auto srq = provider.create_srq(&wanted);
    if (srq) attr->attr = wanted.attr;
    return srq;
  });
}

VERBENA_FORWARD(int, ibv_modify_srq, (ibv_srq * srq, ibv_srq_attr* attr, int mask), call, srq,
                modify_srq(srq, attr, mask))
VERBENA_FORWARD(int, ibv_query_srq, (ibv_srq * srq, ibv_srq_attr* attr), call, srq, query_srq(srq, attr))
VERBENA_FORWARD(int, ibv_destroy_srq, (ibv_srq * srq), destroy, srq, destroy_srq(srq))
