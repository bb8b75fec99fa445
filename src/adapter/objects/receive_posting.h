// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"
#include "base/failed_call.h"

namespace verbena::adapter {

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
    if (wr->num_sge == 1) [[likely]] {  // avoids the call of copy_n()
      *wqe->sge_space() = *wr->sg_list;
    } else {
      std::copy_n(wr->sg_list, wr->num_sge, wqe->sge_space());
    }
  }
  return posted;
}

}  // namespace verbena::adapter
