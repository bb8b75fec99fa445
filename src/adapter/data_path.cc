// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <mutex>

#include "adapter/limits.h"
#include "adapter/software_context.h"
#include "memory/guarded.h"
#include "transport/gather.h"
#include "transport/qp_state.h"

namespace verbena::adapter {
namespace {

using queues::RecvWqe;
using queues::SendWqe;

// What a work request opcode is, and with which services it may be posted; by enum ibv_wr_opcode.
struct OpcodeRule {
  bool on_rc = false;
  bool on_ud = false;
  bool remote = false;  // has a remote address and key
  bool atomic = false;
};
constexpr OpcodeRule kRules[] = {
    {.on_rc = true, .remote = true},                  // RDMA_WRITE
    {.on_rc = true, .remote = true},                  // RDMA_WRITE_WITH_IMM
    {.on_rc = true, .on_ud = true},                   // SEND
    {.on_rc = true, .on_ud = true},                   // SEND_WITH_IMM
    {.on_rc = true, .remote = true},                  // RDMA_READ
    {.on_rc = true, .remote = true, .atomic = true},  // ATOMIC_CMP_AND_SWP
    {.on_rc = true, .remote = true, .atomic = true},  // ATOMIC_FETCH_AND_ADD
};
static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_ATOMIC_FETCH_AND_ADD == 6);

bool may_inline(const ibv_send_wr& wr) {
  return wr.opcode <= IBV_WR_SEND_WITH_IMM;
}

// Copies what the application wants inline; its buffer needs no key and may be changed after posting.
int fill_inline(SendWqe& wqe, const ibv_send_wr& wr, uint32_t max_inline) {
  if (!may_inline(wr) || wqe.length > max_inline) return EINVAL;
  wqe.num_sge = 0;
  std::byte* to = wqe.inline_space();
  const bool copied = memory::guarded([&] {
    for (int i = 0; i < wr.num_sge; ++i) {
      const ibv_sge& sge = wr.sg_list[i];
      if (sge.length > 0) std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
      to += sge.length;
    }
  });
  return copied ? 0 : EFAULT;
}

// 0 when the request may be posted to a QP of this service.
int check_opcode(ibv_wr_opcode opcode, bool ud) {
  if (static_cast<size_t>(opcode) < std::size(kRules)) {
    const OpcodeRule& rule = kRules[opcode];
    return (ud ? rule.on_ud : rule.on_rc) ? 0 : EINVAL;
  }
  return opcode <= IBV_WR_DRIVER1 ? EOPNOTSUPP : EINVAL;
}

int fill(SendWqe& wqe, const ibv_send_wr& wr, const Qp& qp) {
  const ibv_qp_cap& cap = qp.init.cap;
  const bool ud = qp.init.qp_type == IBV_QPT_UD;
  if (const int error = check_opcode(wr.opcode, ud); error != 0) return error;
  const OpcodeRule& rule = kRules[wr.opcode];
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > cap.max_send_sge) return EINVAL;
  const std::span<const ibv_sge> list(wr.sg_list, static_cast<size_t>(wr.num_sge));
  const uint64_t length = transport::total_length(list);
  if (length > kMaxMessageBytes) return EINVAL;
  if (rule.atomic && (length < sizeof(uint64_t) || wr.wr.atomic.remote_addr % sizeof(uint64_t) != 0))
    return EINVAL;

  wqe.wr_id = wr.wr_id;
  wqe.opcode = static_cast<uint8_t>(wr.opcode);
  wqe.flags = static_cast<uint8_t>(wr.send_flags);
  wqe.length = rule.atomic ? sizeof(uint64_t) : static_cast<uint32_t>(length);
  wqe.immediate = wr.imm_data;
  wqe.num_sge = static_cast<uint16_t>(wr.num_sge);
  if (ud) {
    if (wr.wr.ud.ah == nullptr || wr.wr.ud.ah->pd != qp.qp_base.pd) return EINVAL;
    wqe.path = Ah::of(wr.wr.ud.ah).path;
    wqe.remote_qpn = roce::Qpn(wr.wr.ud.remote_qpn);
    wqe.remote_qkey = wr.wr.ud.remote_qkey;
  } else if (rule.atomic) {
    wqe.remote_address = wr.wr.atomic.remote_addr;
    wqe.rkey = wr.wr.atomic.rkey;
    wqe.compare_add = wr.wr.atomic.compare_add;
    wqe.swap = wr.wr.atomic.swap;
  } else if (rule.remote) {
    wqe.remote_address = wr.wr.rdma.remote_addr;
    wqe.rkey = wr.wr.rdma.rkey;
  }
  if (wqe.is_inline()) return fill_inline(wqe, wr, cap.max_inline_data);
  std::copy(list.begin(), list.end(), wqe.sge_space());
  return 0;
}

// The state is looked at with the lock held, which a change of state waits for (QueuePair::enter): what is
// posted in a state is there when the QP leaves it.
int post_send(ibv_qp* abi, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = Qp::of(abi);
  transport::QueuePair& transport = *qp.transport;
  int error = 0;
  uint32_t filled = 0;
  {
    const std::lock_guard guard(transport.send_lock());
    if (!transport::accepts_sends(transport.state())) error = EINVAL;
    for (; wr != nullptr && error == 0; wr = wr->next, ++filled) {
      SendWqe* wqe = transport.send_queue().reserve(filled);
      error = wqe == nullptr ? ENOMEM : fill(*wqe, *wr, qp);
      if (error != 0) break;
    }
    transport.send_queue().publish(filled);
  }
  // Left alone when all is well: programs that never fail pass null.
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  if (filled > 0) qp.shard.ring(transport);
  return error;
}

int post_recv(ibv_qp* abi, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = Qp::of(abi);
  transport::QueuePair& transport = *qp.transport;
  int error = 0;
  uint32_t filled = 0;
  ibv_qp_state state;
  {
    const std::lock_guard guard(transport.recv_lock());
    state = transport.state();
    if (!transport::accepts_receives(state)) error = EINVAL;
    for (; wr != nullptr && error == 0; wr = wr->next, ++filled) {
      RecvWqe* wqe = transport.recv_queue().reserve(filled);
      if (wqe == nullptr) {
        error = ENOMEM;
        break;
      }
      if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > qp.init.cap.max_recv_sge) {
        error = EINVAL;
        break;
      }
      wqe->wr_id = wr->wr_id;
      wqe->num_sge = static_cast<uint32_t>(wr->num_sge);
      std::copy_n(wr->sg_list, wr->num_sge, wqe->sge_space());
    }
    transport.recv_queue().publish(filled);
  }
  if (error != 0 && bad_wr != nullptr) *bad_wr = wr;
  // Receives wait for the peer; only in ERR there is something to do at once: flush them.
  if (filled > 0 && state == IBV_QPS_ERR) qp.shard.ring(transport);
  return error;
}

int poll_cq(ibv_cq* abi, int count, ibv_wc* wc) {
  Cq& cq = Cq::of(abi);
  const int found = cq.queue->poll(count, wc);
  if (found != 0) return found;
  cq.owner.shard().poll();
  return cq.queue->poll(count, wc);
}

int req_notify_cq(ibv_cq* abi, int solicited_only) {
  Cq& cq = Cq::of(abi);
  cq.queue->arm(solicited_only != 0);
  cq.owner.shard().expect_sleep();
  return 0;
}

}  // namespace

void fill_data_path(ibv_context_ops& ops) {
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
}

}  // namespace verbena::adapter
