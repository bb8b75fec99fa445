// SPDX-License-Identifier: Apache-2.0
#include "adapter/qp_capacities.h"

#include <algorithm>
#include <bit>

#include "adapter/limits.h"

namespace verbena::adapter {

int check_capacities(const ibv_qp_cap& cap) {
  const auto within = [](uint32_t value, int most) { return value <= static_cast<uint32_t>(most); };
  return within(cap.max_send_wr, kMaxQpWr) && within(cap.max_recv_wr, kMaxQpWr) &&
                 within(cap.max_send_sge, kMaxSge) && within(cap.max_recv_sge, kMaxSge) &&
                 within(cap.max_inline_data, kMaxInline)
             ? 0
             : EINVAL;
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
