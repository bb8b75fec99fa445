// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/qp_capacities.h"

#include <algorithm>
#include <bit>

#include "adapter/objects/limits.h"
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

}  // namespace verbena::adapter
