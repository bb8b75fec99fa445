// SPDX-License-Identifier: Apache-2.0
#include "rdmacm/ece.h"

#include <cerrno>

#include "rdmacm/calls.h"

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
  const uint32_t remote = identifier.remote_ece.vendor_id;
  if (remote == 0) return 0;  // the QP is not for a request
  return set(qp, remote == ece.vendor_id ? identifier.remote_ece : nothing_of(ece.vendor_id));
}

int note_local_ece(Identifier& identifier, ibv_qp* qp) {
  if (identifier.remote_ece.vendor_id == 0) return 0;
  ibv_ece ece{};
  if (const int error = query(qp, ece)) return error;
  identifier.local_ece.options = ece.options;
  return 0;
}

int settle_ece(Identifier& identifier, const ibv_ece& answered) {
  const uint32_t own = identifier.local_ece.vendor_id;
  // The peer has to answer in the terms of our vendor, or not at all.
  if (answered.vendor_id != 0 && answered.vendor_id != own) return EINVAL;
  identifier.remote_ece.vendor_id = answered.vendor_id;
  return set(identifier.qp, answered.vendor_id != 0 ? answered : nothing_of(own));
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
    if (identifier.qp != nullptr || ece == nullptr || ece->vendor_id == 0 || ece->comp_mask != 0)
      return EINVAL;
    identifier.local_ece = *ece;
    return 0;
  });
}

VERBENA_ABI int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  using namespace verbena::rdmacm;
  return answer_for(id, [&](Identifier& identifier) {
    if (identifier.qp != nullptr || ece == nullptr) return EINVAL;
    *ece = identifier.remote_ece;
    ece->comp_mask = 0;
    return 0;
  });
}
