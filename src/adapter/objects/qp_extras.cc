// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/qp_extras.h"

#include "adapter/objects/protection_domains.h"
#include "adapter/objects/send_rules.h"
#include "adapter/queues/status_words.h"
#include "base/failed_call.h"

namespace verbena::adapter {
namespace {

constexpr uint32_t kUnderstood = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                 IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
constexpr uint32_t kUnderstoodForRaw = kUnderstood | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;

// The flags that rdma-core passes on. Others have no meaning for any device.
constexpr uint32_t kKnownFlags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SCATTER_FCS |
                                 IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SOURCE_QPN |
                                 IBV_QP_CREATE_PCI_WRITE_END_PADDING;

int check_flags(uint32_t flags, ibv_qp_type type) {
  if ((flags & ~kKnownFlags) != 0)
    return because(EINVAL, "create_flags {:#x} have bits that are unknown here", flags);
  const uint32_t supported = type == IBV_QPT_UD           ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
                             : type == IBV_QPT_RAW_PACKET ? IBV_QP_CREATE_CVLAN_STRIPPING
                                                          : 0;
  return (flags & ~supported) == 0 ? 0
                                   : because(EOPNOTSUPP, "create_flags {:#x} are not supported on {}",
                                             flags & ~supported, queues::name_of(type));
}

bool has(const ibv_qp_init_attr_ex& attr, ibv_qp_init_attr_mask field) {
  return (attr.comp_mask & field) != 0;
}

}  // namespace

int check_extras(const ibv_qp_init_attr_ex& attr) {
  const bool raw = attr.qp_type == IBV_QPT_RAW_PACKET;
  if ((attr.comp_mask & ~(raw ? kUnderstoodForRaw : kUnderstood)) != 0) return EOPNOTSUPP;
  if (has(attr, IBV_QP_INIT_ATTR_CREATE_FLAGS)) {
    if (const int error = check_flags(attr.create_flags, attr.qp_type); error != 0) return error;
  }
  // There is no segmentation here, so only a header of 0 bytes is possible.
  if (has(attr, IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attr.max_tso_header != 0) return EOPNOTSUPP;
  if (has(attr, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) {
    const uint64_t possible = executed_operations(service_bit(attr.qp_type));
    if ((attr.send_ops_flags & ~possible) != 0)
      return because(EOPNOTSUPP, "send_ops_flags {:#x} are not supported on {}",
                     attr.send_ops_flags & ~possible, queues::name_of(attr.qp_type));
  }
  return 0;
}

void apply_extras(Qp& qp, const ibv_qp_init_attr_ex& attr) {
  if (has(attr, IBV_QP_INIT_ATTR_CREATE_FLAGS)) qp.create_flags = attr.create_flags;
  if (qp.pd != nullptr) qp.one_thread = qp.pd->thread != nullptr;
  if (!has(attr, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) return;
  qp.extended = true;
  fill_send_operations(qp, attr.send_ops_flags);
}

}  // namespace verbena::adapter
