// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/ece.h"

#include <cerrno>

#include "libraries/librdmacm/calls.h"

namespace verbena::rdmacm {
namespace {

int query(ibv_qp* qp, ibv_ece& ece) {
  const int error = verbs_error(ibv_query_ece(qp, &ece));
  return error == EOPNOTSUPP ? 0 : error;
}

int set(ibv_qp* qp, ibv_ece ece) {
  const int error = verbs_error(ibv_set_ece(qp, &ece));
  return error == EOPNOTSUPP ? 0 : error;
}

ibv_ece ece_of(const protocol::ConnectionParameters& parameters) {
  ibv_ece ece{};
  ece.vendor_id = parameters.ece_vendor;
  ece.options = parameters.ece_options;
  return ece;
}

ibv_ece nothing_of(uint32_t vendor) {
  ibv_ece ece{};
  ece.vendor_id = vendor;
  return ece;
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
  if (identifier.peers.ece_vendor == 0) return 0;
  ibv_ece ece{};
  if (const int error = query(qp, ece)) return error;
  identifier.local_ece.options = ece.options;
  return 0;
}

int settle_ece(Identifier& identifier, const protocol::ConnectionParameters& answer) {
  const uint32_t own = identifier.local_ece.vendor_id;
  // The peer must use our vendor's options, or none.
  if (answer.ece_vendor != 0 && answer.ece_vendor != own) return EINVAL;
  identifier.peers = answer;
  return set(identifier.qp, answer.ece_vendor != 0 ? ece_of(answer) : nothing_of(own));
}

int read_back_ece(Identifier& identifier) {
  ibv_ece ece{};
  if (const int error = query(identifier.qp, ece)) return error;
  identifier.local_ece.options = ece.options;
  return 0;
}

}  // namespace verbena::rdmacm

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
