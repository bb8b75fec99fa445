// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/qp_creation.h"

#include <algorithm>
#include <bit>

#include "adapter/objects/limits.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/send_rules.h"
#include "adapter/queues/status_words.h"
#include "base/failed_call.h"

namespace verbena::adapter {

namespace {

struct Bound {
  uint32_t ibv_qp_cap::*value;
  const char* name;
  const char* limit_name;  // its name in ibv_query_device(3)
  int limit;
};
constexpr Bound kBounds[] = {
    {&ibv_qp_cap::max_send_wr, "max_send_wr", "max_qp_wr", kMaxQpWr},
    {&ibv_qp_cap::max_recv_wr, "max_recv_wr", "max_qp_wr", kMaxQpWr},
    {&ibv_qp_cap::max_send_sge, "max_send_sge", "max_sge", kMaxSge},
    {&ibv_qp_cap::max_recv_sge, "max_recv_sge", "max_sge", kMaxSge},
    {&ibv_qp_cap::max_inline_data, "max_inline_data", "the greatest max_inline_data", kMaxInline},
};

}  // namespace

int check_capacities(const ibv_qp_cap& cap) {
  for (const Bound& bound : kBounds) {
    if (const uint32_t value = cap.*bound.value; value > static_cast<uint32_t>(bound.limit))
      return because(EINVAL, "cap.{} {} exceeds {} {}", bound.name, value, bound.limit_name, bound.limit);
  }
  return 0;
}

void round_up(ibv_qp_cap& cap) {
  cap.max_send_sge = std::max(cap.max_send_sge, 1u);
  cap.max_recv_sge = std::max(cap.max_recv_sge, 1u);
  cap.max_inline_data =
      std::max<uint32_t>((cap.max_inline_data + 15) & ~15u, cap.max_send_sge * sizeof(ibv_sge));
  if (cap.max_send_wr > 0) cap.max_send_wr = std::bit_ceil(cap.max_send_wr);
  if (cap.max_recv_wr > 0) cap.max_recv_wr = std::bit_ceil(cap.max_recv_wr);
}

Result<QpRings> QpRings::create(const ibv_qp_cap& cap, CustomMemory* memory) {
  const uint32_t send_extra = std::max<uint32_t>(cap.max_send_sge * sizeof(ibv_sge), cap.max_inline_data);
  auto send = queues::SendQueue::create(cap.max_send_wr, send_extra, {memory, queues::RingKind::kSend});
  if (!send) return tl::unexpected(send.error());
  auto recv =
      queues::RecvQueue::create(cap.max_recv_wr, cap.max_recv_sge * static_cast<uint32_t>(sizeof(ibv_sge)),
                                {memory, queues::RingKind::kReceive});
  if (!recv) return tl::unexpected(recv.error());
  return QpRings{std::move(*send), std::move(*recv)};
}

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
