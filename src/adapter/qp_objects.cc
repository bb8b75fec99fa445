// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "adapter/limits.h"
#include "adapter/software_context.h"
#include "transport/qp_state.h"
#include "transport/rc.h"
#include "transport/ud.h"

namespace verbena::adapter {
namespace {

// PSNs have 24 bits; like the kernel we take them from any number. A QPN with more is a mistake.
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint32_t kMostQpn = 0xffffff;
// What goes beyond needs an extended query command, which there is none of (rdma-core answers the same).
constexpr int kQueryMask = IBV_QP_RATE_LIMIT - 1;

int check_capacities(const ibv_qp_cap& cap) {
  const auto within = [](uint32_t value, int most) { return value <= static_cast<uint32_t>(most); };
  return within(cap.max_send_wr, kMaxQpWr) && within(cap.max_recv_wr, kMaxQpWr) &&
                 within(cap.max_send_sge, kMaxSge) && within(cap.max_recv_sge, kMaxSge) &&
                 within(cap.max_inline_data, kMaxInline)
             ? 0
             : EINVAL;
}

// What the QP really has room for: rings are powers of two, the space of a gather list serves inline data
// too.
void round_up(ibv_qp_cap& cap) {
  cap.max_send_sge = std::max(cap.max_send_sge, 1u);
  cap.max_recv_sge = std::max(cap.max_recv_sge, 1u);
  cap.max_inline_data =
      std::max<uint32_t>((cap.max_inline_data + 15) & ~15u, cap.max_send_sge * sizeof(ibv_sge));
  if (cap.max_send_wr > 0) cap.max_send_wr = std::bit_ceil(cap.max_send_wr);
  if (cap.max_recv_wr > 0) cap.max_recv_wr = std::bit_ceil(cap.max_recv_wr);
}

// How large each attribute may be (ib_modify_qp_is_ok() and modify_qp() of the kernel's uverbs and rxe).
struct Bound {
  int mask;
  uint32_t (*value)(const ibv_qp_attr&);
  uint32_t most;
};
constexpr Bound kBounds[] = {
    {IBV_QP_PKEY_INDEX, [](const ibv_qp_attr& a) { return uint32_t{a.pkey_index}; }, kPkeyTableLength - 1},
    {IBV_QP_DEST_QPN, [](const ibv_qp_attr& a) { return a.dest_qp_num; }, kMostQpn},
    {IBV_QP_TIMEOUT, [](const ibv_qp_attr& a) { return uint32_t{a.timeout}; }, 31},
    {IBV_QP_RETRY_CNT, [](const ibv_qp_attr& a) { return uint32_t{a.retry_cnt}; }, 7},
    {IBV_QP_RNR_RETRY, [](const ibv_qp_attr& a) { return uint32_t{a.rnr_retry}; }, 7},
    {IBV_QP_MIN_RNR_TIMER, [](const ibv_qp_attr& a) { return uint32_t{a.min_rnr_timer}; }, 31},
    {IBV_QP_MAX_QP_RD_ATOMIC, [](const ibv_qp_attr& a) { return uint32_t{a.max_rd_atomic}; }, kMaxReadAtomic},
    {IBV_QP_MAX_DEST_RD_ATOMIC, [](const ibv_qp_attr& a) { return uint32_t{a.max_dest_rd_atomic}; },
     kMaxReadAtomic},
};

}  // namespace

Qp::Qp(SoftwareContext& maker)
    : ibv_qp_ex{},
      owner(maker),
      shard(maker.shard()),
      account(qp_base.mutex, qp_base.cond),
      async_events(kQpEvents, {.element = {.qp = abi()}, .event_type = {}}, &async_events_taken) {}

void Qp::on_qp_event(ibv_event_type type) {
  async_events.post(type, owner.events());
}

Result<ibv_qp*> SoftwareContext::create_qp(ibv_qp_init_attr_ex* attr) {
  if (is_gone()) return fail(EIO);
  constexpr uint32_t kUnderstood = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  if ((attr->comp_mask & ~kUnderstood) != 0) return fail(EOPNOTSUPP);
  const uint32_t flags = (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 ? attr->create_flags : 0;
  if ((flags & ~uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}) != 0) return fail(EOPNOTSUPP);
  if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UD) return fail(EOPNOTSUPP);
  if (attr->srq != nullptr) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr) return fail(EINVAL);
  if (attr->send_cq == nullptr || attr->recv_cq == nullptr) return fail(EINVAL);
  for (const ibv_context* of : {attr->pd->context, attr->send_cq->context, attr->recv_cq->context}) {
    if (of != &abi().context) return fail(EINVAL);
  }
  if (const int error = check_capacities(attr->cap); error != 0) return fail(error);

  ibv_qp_cap cap = attr->cap;
  round_up(cap);
  const uint32_t send_extra = std::max<uint32_t>(cap.max_send_sge * sizeof(ibv_sge), cap.max_inline_data);
  auto send_queue = queues::SendQueue::create(cap.max_send_wr, send_extra);
  if (!send_queue) return tl::unexpected(send_queue.error());
  auto recv_queue =
      queues::RecvQueue::create(cap.max_recv_wr, cap.max_recv_sge * static_cast<uint32_t>(sizeof(ibv_sge)));
  if (!recv_queue) return tl::unexpected(recv_queue.error());

  auto qp = std::make_unique<Qp>(*this);
  auto qpn = shard().exclusively([&] { return shard().reserve_qpn(); });
  if (!qpn) return tl::unexpected(qpn.error());

  transport::QpConfig config;
  config.qpn = *qpn;
  config.pd = Pd::of(attr->pd).id;
  config.signal_all = attr->sq_sig_all != 0;
  config.send_cq = Cq::of(attr->send_cq).queue.get();
  config.recv_cq = Cq::of(attr->recv_cq).queue.get();
  config.keys = &shard().keys();
  config.listener = qp.get();
  control::QpStatus& status = shard().status_of(*qpn);
  config.counters = &status.counters;
  status.type.store(attr->qp_type, std::memory_order_relaxed);
  status.device_index.store(device_index_, std::memory_order_relaxed);
  if (attr->qp_type == IBV_QPT_RC) {
    qp->transport =
        std::make_unique<transport::RcQueuePair>(config, std::move(*send_queue), std::move(*recv_queue));
  } else {
    qp->transport =
        std::make_unique<transport::UdQueuePair>(config, std::move(*send_queue), std::move(*recv_queue));
  }

  qp->blocks_own_multicast = (flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0;
  attr->cap = cap;
  qp->init = {attr->qp_context, attr->send_cq, attr->recv_cq, nullptr, cap, attr->qp_type, attr->sq_sig_all};
  ibv_qp& abi_qp = *qp->abi();
  abi_qp.context = &abi().context;
  abi_qp.qp_context = attr->qp_context;
  abi_qp.pd = attr->pd;
  abi_qp.send_cq = attr->send_cq;
  abi_qp.recv_cq = attr->recv_cq;
  abi_qp.qp_num = qpn->value();
  abi_qp.state = IBV_QPS_RESET;
  abi_qp.qp_type = attr->qp_type;
  abi_qp.handle = next_handle();
  ++Pd::of(attr->pd).users;
  ++Cq::of(attr->send_cq).users;
  ++Cq::of(attr->recv_cq).users;
  shard().exclusively([&] { shard().add(*qp->transport); });
  const std::lock_guard guard(objects_mutex_);
  qps_.push_back(*qp);
  return qp.release()->abi();
}

void SoftwareContext::retire(Qp& qp) {
  for (const MulticastBinding& binding : qp.multicast) leave(qp, binding);
  const ibv_qp& abi_qp = *qp.abi();
  // All under the lock: from the moment it is removed another QP may get the number.
  qp.shard.exclusively([&] {
    qp.shard.remove(*qp.transport);
    Cq::of(abi_qp.send_cq).queue->remove_entries_of(abi_qp.qp_num);
    Cq::of(abi_qp.recv_cq).queue->remove_entries_of(abi_qp.qp_num);
  });
  withdraw_events(qp);
}

void SoftwareContext::withdraw_events(Qp& qp) {
  if (!engine_->inherited()) qp.async_events.withdraw(events());
}

int SoftwareContext::destroy_qp(ibv_qp* abi_qp) {
  Qp& qp = Qp::of(abi_qp);
  if (!qp.multicast.empty()) return EBUSY;
  retire(qp);
  // Events that the application holds must come back first (ibv_get_async_event(3)).
  qp.account.await(abi_qp->events_completed, qp.async_events_taken);
  --Cq::of(abi_qp->send_cq).users;
  --Cq::of(abi_qp->recv_cq).users;
  --Pd::of(abi_qp->pd).users;
  const std::lock_guard guard(objects_mutex_);
  delete &qp;
  return 0;
}

int SoftwareContext::check_attributes(const Qp& qp, const ibv_qp_attr& attr, int mask) const {
  const ibv_qp_state from = qp.transport->state();
  const ibv_qp_state assumed = (mask & IBV_QP_CUR_STATE) != 0 ? attr.cur_qp_state : from;
  if (assumed != from) return EINVAL;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
  if (const int error = transport::check_transition(qp.init.qp_type, from, to, mask); error != 0)
    return error;
  if ((mask & IBV_QP_PORT) != 0 && (attr.port_num < 1 || attr.port_num > kPorts)) return EINVAL;
  for (const Bound& bound : kBounds) {
    if ((mask & bound.mask) != 0 && bound.value(attr) > bound.most) return EINVAL;
  }
  if ((mask & IBV_QP_PATH_MTU) != 0) {
    const auto now = link();
    const uint32_t bytes = mtu_bytes(attr.path_mtu);
    if (bytes == 0 || (now != nullptr && bytes > mtu_bytes(path_mtu_of(now->mtu)))) return EINVAL;
  }
  if ((mask & (IBV_QP_ALT_PATH | IBV_QP_RATE_LIMIT)) != 0) return EOPNOTSUPP;
  // Without a second path there is nowhere else to be.
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attr.path_mig_state != IBV_MIG_MIGRATED) return EOPNOTSUPP;
  return 0;
}

// Takes over the attributes. Nothing is changed when one of them is wrong.
Result<void> SoftwareContext::apply(Qp& qp, const ibv_qp_attr& attr, int mask) {
  transport::QpAttributes& t = qp.transport->attributes();
  ibv_qp_attr& kept = qp.attributes;
  if ((mask & IBV_QP_AV) != 0) {
    auto path = resolve(attr.ah_attr);
    if (!path) return tl::unexpected(path.error());
    t.path = *path;
    kept.ah_attr = attr.ah_attr;
  }
  if ((mask & IBV_QP_PORT) != 0) kept.port_num = attr.port_num;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) kept.pkey_index = attr.pkey_index;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) t.access = attr.qp_access_flags;
  if ((mask & IBV_QP_QKEY) != 0) t.qkey = attr.qkey;
  if ((mask & IBV_QP_PATH_MTU) != 0) t.path_mtu = mtu_bytes(kept.path_mtu = attr.path_mtu);
  if ((mask & IBV_QP_TIMEOUT) != 0) t.timeout = attr.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) t.retry_count = attr.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) t.rnr_retry = attr.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) t.receive_psn = roce::Psn(attr.rq_psn & kPsnMask);
  if ((mask & IBV_QP_SQ_PSN) != 0) t.send_psn = roce::Psn(attr.sq_psn & kPsnMask);
  if ((mask & IBV_QP_DEST_QPN) != 0) t.destination = roce::Qpn(attr.dest_qp_num);
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) t.max_rd_atomic = attr.max_rd_atomic;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) t.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) t.min_rnr_timer = attr.min_rnr_timer;
  if ((mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_SQD) {
    t.notify_drained = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr.en_sqd_async_notify != 0;
  }
  return {};
}

int SoftwareContext::modify_qp(ibv_qp* abi_qp, ibv_qp_attr* attr, int mask) {
  if (is_gone()) return EIO;
  Qp& qp = Qp::of(abi_qp);
  const std::lock_guard modifying(qp.modifying);
  return qp.shard.exclusively([&]() -> int {
    if (const int error = check_attributes(qp, *attr, mask); error != 0) return error;
    if (auto applied = apply(qp, *attr, mask); !applied) return applied.error().code;
    if (qp.init.qp_type == IBV_QPT_UD && (mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_RTR) {
      // A datagram is one packet of at most the port's MTU.
      const auto now = link();
      qp.transport->attributes().path_mtu = mtu_bytes(path_mtu_of(now != nullptr ? now->mtu : 0));
    }
    const ibv_qp_state from = qp.transport->state();
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : from;
    if (to == IBV_QPS_RESET) {
      qp.transport->attributes() = {};
      qp.attributes = {};
    }
    if (to != from || to == IBV_QPS_RESET) qp.transport->enter(to);
    if ((mask & IBV_QP_STATE) != 0) abi_qp->state = to;
    qp.shard.touched(*qp.transport);
    return 0;
  });
}

int SoftwareContext::query_qp(ibv_qp* abi_qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  if ((mask & ~kQueryMask) != 0) return EOPNOTSUPP;
  Qp& qp = Qp::of(abi_qp);
  const std::lock_guard modifying(qp.modifying);
  qp.shard.exclusively([&] {
    const transport::QpAttributes& t = qp.transport->attributes();
    *attr = qp.attributes;
    attr->qp_state = attr->cur_qp_state = qp.transport->state();
    attr->qkey = t.qkey;
    attr->rq_psn = qp.transport->next_receive_psn().value();
    attr->sq_psn = qp.transport->next_send_psn().value();
    attr->dest_qp_num = t.destination.value();
    attr->qp_access_flags = t.access;
    attr->cap = qp.init.cap;
    attr->max_rd_atomic = t.max_rd_atomic;
    attr->max_dest_rd_atomic = t.max_dest_rd_atomic;
    attr->min_rnr_timer = t.min_rnr_timer;
    attr->timeout = t.timeout;
    attr->retry_cnt = t.retry_count;
    attr->rnr_retry = t.rnr_retry;
    attr->path_mig_state = IBV_MIG_MIGRATED;
    attr->sq_draining = attr->qp_state == IBV_QPS_SQD && qp.transport->has_outstanding();
    abi_qp->state = attr->qp_state;
  });
  *init_attr = qp.init;
  return 0;
}

}  // namespace verbena::adapter
