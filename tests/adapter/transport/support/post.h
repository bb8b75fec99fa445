// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include <infiniband/verbs.h>

#include "adapter/queues/work_queue.h"
#include "adapter/transport/queue_pair.h"

namespace verbena::transport {

// Posts a valid request, as ibv_post_send() and ibv_post_recv() do. False if the ring is full.
inline bool post_send(QueuePair& qp, const ibv_send_wr& wr, const roce::Path* path = nullptr) {
  queues::SendWqe* wqe = qp.send_queue().reserve();
  if (wqe == nullptr) return false;
  wqe->wr_id = wr.wr_id;
  wqe->opcode = static_cast<uint8_t>(wr.opcode);
  wqe->flags = static_cast<uint8_t>(wr.send_flags);
  wqe->immediate = wr.imm_data;
  wqe->remote_address = wqe->compare_add = wqe->swap = wqe->rkey = 0;
  wqe->remote_srqn = wr.qp_type.xrc.remote_srqn;
  if (wqe->opcode ==
      queues::kFlushOpcode) {  // ibv_send_wr has no fields for FLUSH, so tests use those of atomics
    wqe->remote_address = wr.wr.atomic.remote_addr;
    wqe->rkey = wr.wr.atomic.rkey;
    wqe->compare_add = wr.wr.atomic.compare_add;
    wqe->swap = wr.wr.atomic.swap;
  } else if (wr.opcode == IBV_WR_BIND_MW) {
    const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
    wqe->set_binding({.window_key = wr.bind_mw.mw->rkey,
                      .new_key = wr.bind_mw.rkey,
                      .region_key = info.mr != nullptr ? info.mr->lkey : 0,
                      .address = info.addr,
                      .length = info.length,
                      .access = info.mw_access_flags});
  } else if (path != nullptr) {
    wqe->path = *path;
    wqe->remote_qkey = wr.wr.ud.remote_qkey;
    wqe->remote_qpn = roce::Qpn(wr.wr.ud.remote_qpn);
  } else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wqe->remote_address = wr.wr.atomic.remote_addr;
    wqe->rkey = wr.wr.atomic.rkey;
    wqe->compare_add = wr.wr.atomic.compare_add;
    wqe->swap = wr.wr.atomic.swap;
  } else {
    wqe->remote_address = wr.wr.rdma.remote_addr;
    wqe->rkey = wr.wr.rdma.rkey;
  }
  wqe->length = 0;
  wqe->num_sge = 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (wqe->is_inline()) {
      if (sge.length > 0) {
        std::memcpy(wqe->inline_space() + wqe->length, reinterpret_cast<const void*>(sge.addr), sge.length);
      }
    } else {
      wqe->sge_space()[wqe->num_sge++] = sge;
    }
    wqe->length += sge.length;
  }
  qp.send_queue().publish();
  return true;
}

inline bool post_recv(queues::RecvQueue& queue, const ibv_recv_wr& wr) {
  queues::RecvWqe* wqe = queue.reserve();
  if (wqe == nullptr) return false;
  wqe->wr_id = wr.wr_id;
  wqe->num_sge = static_cast<uint32_t>(wr.num_sge);
  for (int i = 0; i < wr.num_sge; ++i) wqe->sge_space()[i] = wr.sg_list[i];
  queue.publish();
  return true;
}
inline bool post_recv(QueuePair& qp, const ibv_recv_wr& wr) {
  return post_recv(qp.recv_queue(), wr);
}
inline bool post_recv(queues::SharedReceiveQueue& queue, const ibv_recv_wr& wr) {
  return post_recv(queue.ring(), wr);
}

}  // namespace verbena::transport
