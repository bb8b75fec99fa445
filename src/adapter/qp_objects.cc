// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "adapter/limits.h"
#include "adapter/qp_capacities.h"
#include "adapter/qp_extras.h"
#include "adapter/send_rules.h"
#include "adapter/software_context.h"
#include "memory/window.h"
#include "transport/qp_state.h"
#include "transport/queue_owners.h"
#include "transport/rc.h"
#include "transport/uc.h"
#include "transport/ud.h"

namespace verbena::adapter {
namespace {

// PSNs have 24 bits; like the kernel we take them from any number. A QPN with more is a mistake.
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint32_t kMostQpn = 0xffffff;
// What goes beyond, rate limits, is for raw packets only; and queries know nothing of it (nor do
// rdma-core's).
constexpr int kPlainMask = IBV_QP_RATE_LIMIT - 1;

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

// ---- handles

void QpCore::on_qp_event(ibv_event_type type) {
  const std::lock_guard guard(lock_);
  for (Qp* handle : handles_) handle->async_events.post(type, handle->owner.events());
}

bool QpCore::add(Qp& handle) {
  const std::lock_guard guard(lock_);
  if (ended_) return false;
  handles_.push_back(&handle);
  return true;
}

bool QpCore::remove(Qp& handle) {
  const std::lock_guard guard(lock_);
  std::erase(handles_, &handle);
  ended_ = handles_.empty();
  return ended_;
}

Qp::Qp(SoftwareContext& maker, std::shared_ptr<QpCore> shared)
    : ExtendedQp{},
      owner(maker),
      shard(maker.shard()),
      account(qp_base.mutex, qp_base.cond),
      async_events(kQpEvents, {.element = {.qp = abi()}, .event_type = {}}, &async_events_taken),
      core(std::move(shared)),
      transport(core->transport.get()),
      attributes(core->attributes),
      modifying(core->modifying) {}

// ---- creation

namespace {

// What a QP of a type is made with.
struct TypeRule {
  ibv_qp_type type;
  bool pd;         // else an XRC domain
  bool send_side;  // a send queue and its CQ
  bool recv_side;  // a receive queue, or an SRQ, and its CQ
};
constexpr TypeRule kTypes[] = {
    {.type = IBV_QPT_RC, .pd = true, .send_side = true, .recv_side = true},
    {.type = IBV_QPT_UC, .pd = true, .send_side = true, .recv_side = true},
    {.type = IBV_QPT_UD, .pd = true, .send_side = true, .recv_side = true},
    {.type = IBV_QPT_XRC_SEND, .pd = true, .send_side = true, .recv_side = false},
    {.type = IBV_QPT_XRC_RECV, .pd = false, .send_side = false, .recv_side = false},
};

const TypeRule* rule_of(ibv_qp_type type) {
  const auto* at = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TypeRule& rule) { return rule.type == type; });
  return at == std::end(kTypes) ? nullptr : at;
}

bool matches_tags(ibv_srq* srq) {
  return srq != nullptr && Srq::of(srq).type == IBV_SRQT_TM;
}

int check_objects(const ibv_qp_init_attr_ex& attr, const TypeRule& rule, const ibv_context* context) {
  const auto ours = [&](const auto* object) { return object != nullptr && object->context == context; };
  const bool has_pd = (attr.comp_mask & IBV_QP_INIT_ATTR_PD) != 0;
  const bool has_xrcd = (attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0;
  if (rule.pd ? !has_pd || !ours(attr.pd) : !has_xrcd || !ours(attr.xrcd)) return EINVAL;
  if (rule.send_side && !ours(attr.send_cq)) return EINVAL;
  if (rule.recv_side && !ours(attr.recv_cq)) return EINVAL;
  // Queues for XRC belong to no QP. Of a QP that receives nothing by itself, the kernel does not look at it.
  if (rule.recv_side && attr.srq != nullptr && (!ours(attr.srq) || Srq::of(attr.srq).type == IBV_SRQT_XRC)) {
    return EINVAL;
  }
  // The send queue would be the shared queue's, for its rendezvous.
  const bool extended = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (matches_tags(attr.srq) && (rule.type != IBV_QPT_RC || extended)) return EINVAL;
  return 0;
}

std::unique_ptr<transport::QueuePair> make_transport(ibv_qp_type type, const transport::QpConfig& config,
                                                     queues::SendQueue send, queues::RecvQueue recv) {
  using transport::RcQueuePair;
  switch (type) {
    case IBV_QPT_RC:
      return std::make_unique<RcQueuePair>(config, std::move(send), std::move(recv));
    case IBV_QPT_UC:
      return std::make_unique<transport::UcQueuePair>(config, std::move(send), std::move(recv));
    case IBV_QPT_XRC_SEND:
      return std::make_unique<RcQueuePair>(config, std::move(send), std::move(recv),
                                           RcQueuePair::Role::kXrcInitiator);
    case IBV_QPT_XRC_RECV:
      return std::make_unique<RcQueuePair>(config, std::move(send), std::move(recv),
                                           RcQueuePair::Role::kXrcTarget);
    default:
      return std::make_unique<transport::UdQueuePair>(config, std::move(send), std::move(recv));
  }
}

}  // namespace

void count_users(const Qp& qp, int by) {
  const auto add = [by](std::atomic<uint32_t>& users) { users += static_cast<uint32_t>(by); };
  const ibv_qp& abi = qp.qp_base;
  if (abi.pd != nullptr) add(Pd::of(abi.pd).users);
  if (abi.send_cq != nullptr) add(Cq::of(abi.send_cq).users);
  if (abi.recv_cq != nullptr) add(Cq::of(abi.recv_cq).users);
  if (abi.srq != nullptr) add(Srq::of(abi.srq).users);
  if (qp.xrcd != nullptr) add(Xrcd::of(qp.xrcd).users);
  if (qp.raw != nullptr && qp.raw->table != nullptr) add(qp.raw->table->users);
}

Result<ibv_qp*> SoftwareContext::create_qp(ibv_qp_init_attr_ex* attr) {
  if (is_gone()) return fail(EIO);
  if (const int error = check_extras(*attr); error != 0) return fail(error);
  if (attr->qp_type == IBV_QPT_RAW_PACKET) return create_raw_qp(attr);
  const TypeRule* rule = rule_of(attr->qp_type);
  if (rule == nullptr) return fail(EOPNOTSUPP);
  if (const int error = check_objects(*attr, *rule, &abi().context); error != 0) return fail(error);
  if (const int error = check_capacities(attr->cap); error != 0) return fail(error);

  // What a type has no use for is left out, whatever was asked for; a shared queue is in place of one's own.
  ibv_qp_cap cap = attr->cap;
  if (!rule->send_side) cap.max_send_wr = cap.max_send_sge = cap.max_inline_data = 0;
  if (!rule->recv_side || attr->srq != nullptr) cap.max_recv_wr = cap.max_recv_sge = 0;
  round_up(cap);
  uint32_t sends = cap.max_send_wr;
  uint32_t send_extra = std::max<uint32_t>(cap.max_send_sge * sizeof(ibv_sge), cap.max_inline_data);
  // Then the application posts none: a send queue belongs to the shared queue, which fetches with it.
  if (matches_tags(attr->srq)) {
    cap.max_send_wr = cap.max_send_sge = cap.max_inline_data = 0;
    sends = kTagMatchingSends;
    send_extra = kMaxSge * sizeof(ibv_sge);
  }
  CustomMemory* memory = rule->pd ? Pd::of(attr->pd).memory.get() : nullptr;
  auto send_queue = queues::SendQueue::create(sends, send_extra, {memory, queues::RingKind::kSend});
  if (!send_queue) return tl::unexpected(send_queue.error());
  auto recv_queue =
      queues::RecvQueue::create(cap.max_recv_wr, cap.max_recv_sge * static_cast<uint32_t>(sizeof(ibv_sge)),
                                {memory, queues::RingKind::kReceive});
  if (!recv_queue) return tl::unexpected(recv_queue.error());

  auto core = std::make_shared<QpCore>();
  auto qpn = shard().exclusively([&] { return shard().reserve_qpn(); });
  if (!qpn) return tl::unexpected(qpn.error());

  transport::QpConfig config;
  config.qpn = *qpn;
  if (rule->pd) config.pd = Pd::of(attr->pd).id;
  config.signal_all = attr->sq_sig_all != 0;
  if (rule->send_side) config.send_cq = Cq::of(attr->send_cq).queue.get();
  if (rule->recv_side) config.recv_cq = Cq::of(attr->recv_cq).queue.get();
  if (rule->recv_side && attr->srq != nullptr) config.srq = Srq::of(attr->srq).queue.get();
  if (attr->qp_type == IBV_QPT_XRC_RECV) {
    config.srqs = &shard().srqs();
    config.xrc_domain = Xrcd::of(attr->xrcd).domain->id();
    config.owners = Xrcd::of(attr->xrcd).domain->owners();
  }
  config.keys = &shard().keys();
  config.routes = &shard().routes();
  config.listener = core.get();
  control::QpStatus& status = shard().status_of(*qpn);
  config.counters = &status.counters;
  status.type.store(attr->qp_type, std::memory_order_relaxed);
  status.device_index.store(device_index_, std::memory_order_relaxed);
  core->transport = make_transport(attr->qp_type, config, std::move(*send_queue), std::move(*recv_queue));

  auto qp = std::make_unique<Qp>(*this, core);
  core->add(*qp);
  attr->cap = cap;
  qp->init = {attr->qp_context, attr->send_cq,   attr->recv_cq, attr->srq, cap,
              attr->qp_type,    attr->sq_sig_all};
  if (!matches_tags(attr->srq)) qp->send_opcodes = executed_opcodes(service_bit(attr->qp_type));
  apply_extras(*qp, *attr);
  ibv_qp& abi_qp = *qp->abi();
  abi_qp.context = &abi().context;
  abi_qp.qp_context = attr->qp_context;
  if (rule->pd) abi_qp.pd = attr->pd;
  if (rule->send_side) abi_qp.send_cq = attr->send_cq;
  if (rule->recv_side) abi_qp.recv_cq = attr->recv_cq;
  if (rule->recv_side) abi_qp.srq = attr->srq;
  if (!rule->pd) qp->xrcd = attr->xrcd;
  abi_qp.qp_num = qpn->value();
  abi_qp.state = IBV_QPS_RESET;
  abi_qp.qp_type = attr->qp_type;
  abi_qp.handle = next_handle();
  count_users(*qp, +1);
  if (qp->xrcd != nullptr) Xrcd::of(qp->xrcd).domain->add_target(qpn->value(), core);
  shard().exclusively([&] { shard().add(*qp->transport); });
  const std::lock_guard guard(objects_mutex_);
  qps_.push_back(*qp);
  return qp.release()->abi();
}

void SoftwareContext::forget_completions(Qp& qp) {
  const ibv_qp& abi_qp = *qp.abi();
  for (ibv_cq* cq : {abi_qp.send_cq, abi_qp.recv_cq}) {
    if (cq != nullptr) Cq::of(cq).queue->remove_entries_of(abi_qp.qp_num);
  }
}

void SoftwareContext::retire(Qp& qp) {
  for (const MulticastBinding& binding : qp.multicast) leave(qp, binding);
  if (qp.core->remove(qp)) {
    if (qp.xrcd != nullptr) Xrcd::of(qp.xrcd).domain->remove_target(qp.abi()->qp_num);
    // All under the lock: from the moment it is removed another QP may get the number.
    qp.shard.exclusively([&] {
      transport::QueueOwners* owners = qp.transport->config().owners;
      if (owners != nullptr) owners->end(*qp.transport);
      qp.shard.remove(*qp.transport);
      memory::unbind_all(qp.transport->bound_windows());
      forget_completions(qp);
    });
  }
  withdraw_events(qp);
}

void SoftwareContext::withdraw_events(Qp& qp) {
  if (!engine_->inherited()) qp.async_events.withdraw(events());
}

int SoftwareContext::destroy_qp(ibv_qp* abi_qp) {
  Qp& qp = Qp::of(abi_qp);
  if (!qp.multicast.empty()) return EBUSY;
  if (qp.raw != nullptr && qp.raw->flows.load() != 0) return EBUSY;
  retire(qp);
  // Events that the application holds must come back first (ibv_get_async_event(3)).
  qp.account.await(abi_qp->events_completed, qp.async_events_taken);
  Pd* pd = abi_qp->pd != nullptr ? &Pd::of(abi_qp->pd) : nullptr;
  count_users(qp, -1);
  if (pd != nullptr) ++pd->users;  // as long as its memory is in use
  {
    const std::lock_guard guard(objects_mutex_);
    qp.owned.unlink();
  }
  delete &qp;  // may call the application's allocator, so under no lock
  if (pd != nullptr) --pd->users;
  return 0;
}

namespace {

// Programs give both halves of XRC what they give an RC QP. Each passes over what is the other's, as with the
// kernel's uverbs (modify_qp_mask()).
int without_the_other_half(ibv_qp_type type, int mask) {
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (type == IBV_QPT_XRC_RECV)
    return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  return mask;
}

}  // namespace

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
  // RoCE has no alternate paths: the kernel refuses them, and only keeps what is said of migration.
  if ((mask & IBV_QP_ALT_PATH) != 0) return EINVAL;
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attr.path_mig_state > IBV_MIG_ARMED) return EINVAL;
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
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0) kept.path_mig_state = attr.path_mig_state;
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
  if ((mask & IBV_QP_RATE_LIMIT) != 0) qp.raw->limit_rate(qp, attr.rate_limit, 0);
  if ((mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_SQD) {
    t.notify_drained = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr.en_sqd_async_notify != 0;
  }
  return {};
}

int SoftwareContext::modify_qp(ibv_qp* abi_qp, ibv_qp_attr* attr, int mask) {
  if (is_gone()) return EIO;
  Qp& qp = Qp::of(abi_qp);
  mask = without_the_other_half(qp.init.qp_type, mask);
  if ((mask & ~(qp.raw != nullptr ? kPlainMask | IBV_QP_RATE_LIMIT : kPlainMask)) != 0) return EOPNOTSUPP;
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
    // As hardware drivers do: who begins anew finds nothing of before (pyverbs counts on it).
    if (to == IBV_QPS_RESET) forget_completions(qp);
    if ((mask & IBV_QP_STATE) != 0) abi_qp->state = to;
    qp.shard.touched(*qp.transport);
    return 0;
  });
}

int SoftwareContext::query_qp(ibv_qp* abi_qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  if ((mask & ~kPlainMask) != 0) return EOPNOTSUPP;
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
    attr->sq_draining = attr->qp_state == IBV_QPS_SQD && qp.transport->has_outstanding();
    abi_qp->state = attr->qp_state;
  });
  *init_attr = qp.init;
  return 0;
}

}  // namespace verbena::adapter
