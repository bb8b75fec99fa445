// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"
#include "base/failed_call.h"

namespace verbena::adapter {

// The fields of a completion that ibv_create_cq_ex() can make readable (enum ibv_create_cq_wc_flags).
inline constexpr uint64_t kReadableFields = IBV_CREATE_CQ_SUP_WC_FLAGS;

// Fills in the functions behind ibv_start_poll(), ibv_next_poll() and ibv_end_poll(), and the ibv_wc_read_*()
// functions for the fields in the bit mask `fields`. REQUIRES: `cq` is the C struct of a Cq
void fill_extended_polling(ibv_cq_ex& cq, uint64_t fields);

// Fills in the functions that inline functions of verbs.h call through ibv_context::ops. They post to a QP or
// an SRQ, poll a CQ, request an event (ibv_req_notify_cq(3)) and bind a memory window.
void fill_data_path(ibv_context_ops& ops);

// The result of posting a list of receive requests.
struct Posted {
  uint32_t count = 0;  // requests copied to the ring, which publish() has yet to make visible
  int error = 0;       // errno value of the request `failed`; 0 if all succeeded
  ibv_recv_wr* failed = nullptr;
};

// Copies receive requests into the ring, up to the first that fails; the caller then publishes them. A
// request fails with EINVAL if its scatter list is longer than `max_sge`, and with ENOMEM if the ring is
// full. REQUIRES: the caller is the only producer
inline Posted fill_receives(queues::RecvQueue& ring, uint32_t max_sge, ibv_recv_wr* wr) {
  Posted posted;
  for (; wr != nullptr; wr = wr->next, ++posted.count) {
    queues::RecvWqe* wqe = ring.reserve(posted.count);
    const bool fits = wr->num_sge >= 0 && static_cast<uint32_t>(wr->num_sge) <= max_sge;
    if (wqe == nullptr || !fits) [[unlikely]] {
      posted.error = wqe == nullptr ? ENOMEM
                                    : because(EINVAL, "num_sge {} is not within 0 to {}, the queue's max_sge",
                                              wr->num_sge, max_sge);
      posted.failed = wr;
      break;
    }
    wqe->wr_id = wr->wr_id;
    wqe->num_sge = static_cast<uint32_t>(wr->num_sge);
    queues::copy_list({wr->sg_list, wqe->num_sge}, wqe->sge_space());
  }
  return posted;
}

}  // namespace verbena::adapter
