// SPDX-License-Identifier: Apache-2.0
// rdma_cm_id::srq.
#include <cerrno>
#include <cstring>

#include <rdma/rdma_verbs.h>

#include "libraries/librdmacm/calls.h"
#include "libraries/librdmacm/queue_pair.h"

namespace {

using namespace verbena::rdmacm;

bool has(const ibv_srq_init_attr_ex& attributes, uint32_t bit, const void* object) {
  return (attributes.comp_mask & bit) != 0 && object != nullptr;
}

// Adds what an XRC SRQ needs: a completion queue of its own, and an XRC domain.
int add_xrc_defaults(Identifier& identifier, ibv_srq_init_attr_ex& attributes) {
  if (!has(attributes, IBV_SRQ_INIT_ATTR_XRCD, attributes.xrcd)) {
    const auto domain = identifier.device->shared_xrc_domain();
    if (!domain) return domain.error().code;
    attributes.xrcd = *domain;
  }
  if (!has(attributes, IBV_SRQ_INIT_ATTR_CQ, attributes.cq)) {
    if (const int error = create_completion_queues(identifier, 0, attributes.attr.max_wr)) return error;
    attributes.cq = identifier.recv_cq;
  }
  attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  return 0;
}

int create_srq(Identifier& identifier, ibv_srq_init_attr_ex& attributes) {
  if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0)
    return because(EINVAL, "comp_mask {:#x} lacks IBV_SRQ_INIT_ATTR_TYPE", attributes.comp_mask);
  if (identifier.device == nullptr) return because(EINVAL, kNoDevice);
  if (!has(attributes, IBV_SRQ_INIT_ATTR_PD, attributes.pd)) {
    attributes.pd = identifier.pd;
    attributes.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  }
  if (attributes.srq_type == IBV_SRQT_XRC) {
    if (const int error = add_xrc_defaults(identifier, attributes)) return error;
  }
  ibv_srq* const srq = ibv_create_srq_ex(identifier.verbs, &attributes);
  if (srq == nullptr) {
    const int error = errno;
    const KeptReason kept;
    destroy_completion_queues(identifier);
    return error;
  }
  if (identifier.pd == nullptr) identifier.pd = attributes.pd;
  identifier.srq = srq;
  return 0;
}

}  // namespace

VERBENA_ABI int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attributes) {
  return answer_for(id, [&](Identifier& identifier) {
    if (attributes == nullptr) return because(EINVAL, "attr is null");
    return create_srq(identifier, *attributes);
  });
}

VERBENA_ABI int rdma_create_srq(rdma_cm_id* id, ibv_pd* domain, ibv_srq_init_attr* attributes) {
  return answer_for(id, [&](Identifier& identifier) {
    if (attributes == nullptr) return because(EINVAL, "attr is null");
    // ibv_srq_init_attr_ex begins with ibv_srq_init_attr.
    ibv_srq_init_attr_ex extended{};
    std::memcpy(static_cast<void*>(&extended), attributes, sizeof *attributes);
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    extended.srq_type = identifier.qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
    extended.pd = domain;
    const int error = create_srq(identifier, extended);
    std::memcpy(static_cast<void*>(attributes), &extended, sizeof *attributes);
    return error;
  });
}

VERBENA_ABI void rdma_destroy_srq(rdma_cm_id* id) {
  if (id == nullptr) return;
  answer([&] {
    if (!Identifier::is_one(id)) return because(EINVAL, kNoIdentifier, verbena::ptr(id));
    if (id->srq == nullptr) return 0;
    Identifier& identifier = Identifier::of(id);
    ibv_destroy_srq(identifier.srq);
    identifier.srq = nullptr;
    destroy_completion_queues(identifier);
    return 0;
  });
}
