// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/queue_pairs.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>

#include "adapter/memory/window.h"
#include "adapter/objects/completion_queues.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/send_rules.h"
#include "adapter/objects/xrc_domain.h"
#include "adapter/queues/status_words.h"
#include "adapter/transport/forwarded_requests.h"
#include "adapter/transport/rc.h"
#include "adapter/transport/uc.h"
#include "adapter/transport/ud.h"
#include "base/failed_call.h"
#include "base/only_one.h"

namespace verbena::adapter {
namespace {

// Whether congestion control finds out the capacity of paths, and losses are repaired packet by packet. With
// VERBENA_CONGESTION=fixed there is a fixed window only, and everything from a loss on is sent again, as
// between hardware adapters.
bool wants_repairs() {
  static constinit OnlyOne<bool> wanted;
  return wanted.get([] {
    const char* value = ::secure_getenv("VERBENA_CONGESTION");
    return new bool(value == nullptr || std::string_view(value) != "fixed");
  });
}

// The objects that a QP of a type is created with.
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

int check_objects(const ibv_qp_init_attr_ex& attr, const TypeRule& rule, const OpenDevice& device) {
  const auto ours = [&](const auto* object) { return device.made(object); };
  const bool has_pd = (attr.comp_mask & IBV_QP_INIT_ATTR_PD) != 0;
  const bool has_xrcd = (attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0;
  if (rule.pd && !has_pd) return because(EINVAL, "comp_mask {:#x} lacks IBV_QP_INIT_ATTR_PD", attr.comp_mask);
  if (rule.pd && !ours(attr.pd)) return because(EINVAL, "pd is null, or none of this ibv_context");
  if (!rule.pd && !has_xrcd)
    return because(EINVAL, "comp_mask {:#x} lacks IBV_QP_INIT_ATTR_XRCD", attr.comp_mask);
  if (!rule.pd && !ours(attr.xrcd)) return because(EINVAL, "xrcd is null, or none of this ibv_context");
  if (rule.send_side && !ours(attr.send_cq))
    return because(EINVAL, "send_cq is null, or none of this ibv_context");
  if (rule.recv_side && !ours(attr.recv_cq))
    return because(EINVAL, "recv_cq is null, or none of this ibv_context");
  // SRQs for XRC belong to no QP. If the QP has no receive side, attr.srq is ignored, as in the kernel.
  if (rule.recv_side && attr.srq != nullptr) {
    if (!ours(attr.srq)) return because(EINVAL, "srq is none of this ibv_context");
    if (Srq::of(attr.srq).type == IBV_SRQT_XRC)
      return because(EINVAL, "srq is one for XRC, which serves XRC targets only");
  }
  // With tag matching the send queue is the SRQ's, for its rendezvous.
  const bool extended = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (matches_tags(attr.srq) && (rule.type != IBV_QPT_RC || extended))
    return because(EINVAL, "a shared receive queue with tag matching serves RC without send_ops_flags only");
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

// The capacities that a QP of this type uses. The others are 0, whatever the program asked for.
// ibv_create_qp(3) says that max_recv_wr and max_recv_sge are ignored with a shared receive queue.
ibv_qp_cap used_capacities(const ibv_qp_init_attr_ex& attr, const TypeRule& rule) {
  ibv_qp_cap cap = attr.cap;
  if (!rule.send_side) cap.max_send_wr = cap.max_send_sge = cap.max_inline_data = 0;
  if (!rule.recv_side || attr.srq != nullptr) cap.max_recv_wr = cap.max_recv_sge = 0;
  return cap;
}

// The capacities of a QP with tag matching. Its send queue belongs to the SRQ, which fetches rendezvous data
// with it.
ibv_qp_cap for_tag_matching(ibv_qp_cap cap) {
  cap.max_send_wr = kTagMatchingSends;
  cap.max_send_sge = kMaxSge;
  cap.max_inline_data = 0;
  return cap;
}

void use_objects(transport::QpConfig& config, const ibv_qp_init_attr_ex& attr, const TypeRule& rule,
                 engine::Engine& engine) {
  if (rule.send_side) config.send_cq = Cq::of(attr.send_cq).queue.get();
  if (rule.recv_side) config.recv_cq = Cq::of(attr.recv_cq).queue.get();
  if (rule.recv_side && attr.srq != nullptr) config.srq = Srq::of(attr.srq).queue.get();
  if (attr.qp_type == IBV_QPT_XRC_RECV) {
    config.srqs = &engine.xrc_queues();
    config.xrc_domain = Xrcd::of(attr.xrcd).domain->id();
    config.owners = Xrcd::of(attr.xrcd).domain->owners();
  }
}

// Adds `by` to the user counts of the objects that the QP uses, which cannot be destroyed before it.
void count_users(const Qp& qp, int by) {
  const auto add = [by](auto& users) { users += static_cast<uint32_t>(by); };
  for (Cq* cq : {qp.send_cq, qp.recv_cq}) {
    if (cq == nullptr) continue;
    if (by > 0) cq->joined_by(qp.shard);
    if (by < 0) cq->left_by(qp.shard);
    add(cq->users);
  }
  if (qp.pd != nullptr) add(qp.pd->users);
  if (qp.srq != nullptr) add(qp.srq->users);
  if (qp.xrcd != nullptr) add(Xrcd::of(qp.xrcd).users);
  if (qp.raw != nullptr && qp.raw->table != nullptr) add(qp.raw->table->users);
}

// Shows the objects that the QP uses in the status page, for resource tracking.
void show_objects(Qp& qp) {
  auto& numbers = qp.shard.details_of(qp.transport->config().qpn).numbers;
  const uint32_t pd = qp.pd != nullptr ? qp.pd->state->shown.number() : 0;
  const uint32_t srq = qp.srq != nullptr ? qp.srq->shown.number() : 0;
  numbers[protocol::kQpPd].store(pd, std::memory_order_relaxed);
  numbers[protocol::kQpSharedReceives].store(srq, std::memory_order_relaxed);
}

// REQUIRES: inside exclusively() of the QP's shard
void move_to_error(Qp& qp) {
  const ibv_qp_state state = qp.transport->state();
  if (state == IBV_QPS_RESET || state == IBV_QPS_ERR) return;
  qp.transport->enter(IBV_QPS_ERR, protocol::TraceCause::kDeviceGone);
  qp.shard.touched(*qp.transport);
}

}  // namespace

// ---- creation

// The shard that already fills one of the QP's CQs, so that polling it makes progress on one shard only; else
// the calling thread's. A shard without a wire gets no new QPs once the agent has UDP port 4791.
engine::Shard& QueuePairs::choose_shard(const ibv_qp_init_attr_ex& attr) {
  const bool stays_home = attr.qp_type == IBV_QPT_XRC_RECV || attr.qp_type == IBV_QPT_RAW_PACKET;
  if (stays_home || matches_tags(attr.srq)) return device_.home();
  for (ibv_cq* cq : {attr.send_cq, attr.recv_cq}) {
    if (cq == nullptr || !device_.made(cq)) continue;
    engine::Shard* const shard = Cq::of(cq).shards.first();
    if (shard != nullptr && device_.engine()->may_take_qps(*shard)) return *shard;
  }
  return device_.engine()->shard_for_new_qp();
}

Result<roce::Qpn> QueuePairs::reserve_number(engine::Shard& shard, ibv_qp_type type) {
  auto qpn = shard.exclusively([&] { return shard.reserve_qpn(); });
  if (!qpn) return qpn;
  protocol::QpStatus& status = shard.status_of(*qpn);
  status.type.store(type, std::memory_order_relaxed);
  status.device_index.store(device_.index(), std::memory_order_relaxed);
  return qpn;
}

transport::QpConfig QueuePairs::common_config(const ibv_qp_init_attr_ex& attr, ibv_pd* pd, roce::Qpn qpn,
                                              QpCore& core, engine::Shard& shard) {
  transport::QpConfig config;
  config.qpn = qpn;
  config.type = attr.qp_type;
  if (pd != nullptr) config.pd = Pd::of(pd).id;
  config.signal_all = attr.sq_sig_all != 0;
  config.keys = &device_.keys();
  config.routes = &shard.routes();
  config.repairs = wants_repairs();
  if (config.repairs) config.congestion = congestion::Kind::kBbr;
  config.incast = &device_.engine()->incast();
  config.listener = &core;
  config.trace = &shard.trace();
  config.counters = &shard.status_of(qpn).counters;
  config.more_counters = &shard.more_of(qpn).numbers;
  config.path_numbers = &shard.path_status_of(qpn).numbers;
  config.progress = &shard.details_of(qpn).numbers[protocol::kQpReceivePsn];
  return config;
}

Result<QueuePairs::Parts> QueuePairs::reserve(const ibv_qp_init_attr_ex& attr, ibv_pd* pd,
                                              const ibv_qp_cap& rings) {
  auto place = object_limits().qps.take();
  if (!place) return tl::unexpected(place.error());
  auto made = QpRings::create(rings, pd != nullptr ? Pd::of(pd).memory.get() : nullptr);
  if (!made) return tl::unexpected(made.error());
  engine::Shard& shard = choose_shard(attr);
  auto qpn = reserve_number(shard, attr.qp_type);
  if (!qpn) return tl::unexpected(qpn.error());
  auto core = std::make_shared<QpCore>();
  const transport::QpConfig config = common_config(attr, pd, *qpn, *core, shard);
  return Parts{shard, pd, std::move(*place), std::move(*made), std::move(core), config};
}

std::unique_ptr<Qp> QueuePairs::make(Parts parts, ibv_qp_init_attr_ex& attr, const ibv_qp_cap& cap) {
  auto qp = std::make_unique<Qp>(device_, parts.shard, parts.core);
  parts.core->add(*qp);
  qp->place = std::move(parts.place);
  attr.cap = cap;
  qp->init = {attr.qp_context, attr.send_cq, attr.recv_cq, attr.srq, cap, attr.qp_type, attr.sq_sig_all};
  const transport::QpConfig& uses = qp->transport->config();
  if (parts.pd != nullptr) qp->pd = &Pd::of(parts.pd);
  if (uses.send_cq != nullptr) qp->send_cq = &Cq::of(attr.send_cq);
  if (uses.recv_cq != nullptr) qp->recv_cq = &Cq::of(attr.recv_cq);
  if (uses.srq != nullptr) qp->srq = &Srq::of(attr.srq);
  ibv_qp& abi_qp = *qp->abi();
  abi_qp.pd = parts.pd;
  if (qp->send_cq != nullptr) abi_qp.send_cq = attr.send_cq;
  if (qp->recv_cq != nullptr) abi_qp.recv_cq = attr.recv_cq;
  if (qp->srq != nullptr) abi_qp.srq = attr.srq;
  return qp;
}

Result<ibv_qp*> QueuePairs::create(ibv_qp_init_attr_ex& attr) {
  if (device_.is_gone()) return fail(EIO);
  if (const int error = check_extras(attr); error != 0) return fail(error);
  return attr.qp_type == IBV_QPT_RAW_PACKET ? create_raw(attr) : create_transport(attr);
}

Result<ibv_qp*> QueuePairs::create_transport(ibv_qp_init_attr_ex& attr) {
  const TypeRule* rule = rule_of(attr.qp_type);
  if (rule == nullptr)
    return fail(because(EOPNOTSUPP, "there is no queue pair of qp_type {}", static_cast<int>(attr.qp_type)));
  if (const int error = check_objects(attr, *rule, device_); error != 0) return fail(error);
  ibv_qp_cap cap = used_capacities(attr, *rule);
  if (const int error = check_capacities(cap); error != 0) return fail(error);
  round_up(cap);

  const bool with_tags = matches_tags(attr.srq);
  auto parts = reserve(attr, rule->pd ? attr.pd : nullptr, with_tags ? for_tag_matching(cap) : cap);
  if (!parts) return tl::unexpected(parts.error());
  if (with_tags) cap.max_send_wr = cap.max_send_sge = cap.max_inline_data = 0;
  use_objects(parts->config, attr, *rule, *device_.engine());
  parts->core->transport =
      make_transport(attr.qp_type, parts->config, std::move(parts->rings.send), std::move(parts->rings.recv));
  auto qp = make(std::move(*parts), attr, cap);
  if (!with_tags) qp->send_opcodes = executed_opcodes(service_bit(attr.qp_type));
  if (!rule->pd) {
    qp->xrcd = attr.xrcd;
    Xrcd::of(attr.xrcd).domain->add_target(qp->transport->config().qpn.value(), qp->core);
  }
  return add(std::move(qp), attr);
}

ibv_qp* QueuePairs::add(std::unique_ptr<Qp> qp, const ibv_qp_init_attr_ex& attr) {
  apply_extras(*qp, attr);
  ibv_qp& abi_qp = *qp->abi();
  abi_qp.context = device_.context();
  abi_qp.qp_context = attr.qp_context;
  abi_qp.qp_num = qp->transport->config().qpn.value();
  abi_qp.state = IBV_QPS_RESET;
  abi_qp.qp_type = attr.qp_type;
  abi_qp.handle = device_.next_handle();
  count_users(*qp, +1);
  show_objects(*qp);
  qp->shard.exclusively([&] { qp->shard.add(*qp->transport); });
  return table_.add(std::move(qp))->abi();
}

Result<ibv_qp*> QueuePairs::open(const ibv_qp_open_attr& attr) {
  if (device_.is_gone()) return fail(EIO);
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (attr.comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if ((attr.comp_mask & kNeeded) != kNeeded)
    return fail(
        because(EINVAL, "comp_mask {:#x} lacks IBV_QP_OPEN_ATTR_NUM, _XRCD or _TYPE", attr.comp_mask));
  if (attr.qp_type != IBV_QPT_XRC_RECV)
    return fail(because(EINVAL, "qp_type is {}, and only IBV_QPT_XRC_RECV can be opened",
                        queues::name_of(attr.qp_type)));
  if (!device_.made(attr.xrcd)) return fail(because(EINVAL, "xrcd is null, or none of this ibv_context"));
  if (attr.qp_num > roce::Qpn::kMask)
    return fail(because(EINVAL, "qp_num {:#x} has more than 24 bits", attr.qp_num));
  // A number of another process's slot: its targets cannot be opened here (docs/using.md).
  if (roce::Qpn(attr.qp_num).slot() != device_.home().slot())
    return fail(because(EOPNOTSUPP, "QP {:#08x} is another process's", attr.qp_num));
  std::shared_ptr<QpCore> core = Xrcd::of(attr.xrcd).domain->target(attr.qp_num);
  if (core == nullptr)
    return fail(because(EINVAL, "no target of this XRC domain has the number {:#08x}", attr.qp_num));
  auto qp = std::make_unique<Qp>(device_, device_.home(), std::move(core));
  if (!qp->core->add(*qp))
    return fail(because(EINVAL, "the last handle of QP {:#08x} was closed", attr.qp_num));
  ibv_qp& abi_qp = *qp->abi();
  abi_qp.context = device_.context();
  abi_qp.qp_context = attr.qp_context;  // set whatever the mask says, as libibverbs' ibv_cmd_open_qp() does
  abi_qp.qp_num = attr.qp_num;
  abi_qp.qp_type = IBV_QPT_XRC_RECV;
  abi_qp.state = IBV_QPS_UNKNOWN;
  abi_qp.handle = device_.next_handle();
  qp->init.qp_type = IBV_QPT_XRC_RECV;
  qp->init.qp_context = abi_qp.qp_context;
  qp->xrcd = attr.xrcd;
  ++Xrcd::of(attr.xrcd).users;
  return table_.add(std::move(qp))->abi();
}

// ---- destruction

// Enters a shard before locking the table, in the order in which fork() takes both locks.
void QueuePairs::fail_all() {
  std::set<engine::Shard*> shards;
  table_.for_each([&](Qp& qp) { shards.insert(&qp.shard); });
  for (engine::Shard* shard : shards) {
    shard->exclusively([&] {
      table_.for_each([&](Qp& qp) {
        if (&qp.shard == shard) move_to_error(qp);
      });
    });
  }
}

void Qp::retire() {
  for (const MulticastBinding& binding : multicast) leave_group(*this, binding);
  if (core->remove(*this)) {
    if (xrcd != nullptr) Xrcd::of(xrcd).domain->remove_target(transport->config().qpn.value());
    // All inside one section: another QP may get the number as soon as this one is removed.
    shard.exclusively([&] {
      shard.settle();
      transport::QueueOwners* owners = transport->config().owners;
      if (owners != nullptr) owners->end(*transport);
      shard.remove(*transport);
      memory::unbind_all(owner.keys(), transport->bound_windows());
      forget_completions(*this);
    });
    owner.engine()->await_direct_accesses();
  }
  if (!owner.inherited()) async_events.withdraw(owner.events());
}

std::string QueuePairs::users_of(const void* object) {
  const auto number = [&](const Qp& qp) -> std::optional<uint32_t> {
    if (qp.pd != object && qp.send_cq != object && qp.recv_cq != object && qp.srq != object)
      return std::nullopt;
    return qp.transport->config().qpn.value();
  };
  return table_.list_some(number, [](uint32_t qpn) { return verbena::format("QP {:#08x}", qpn); });
}

int QueuePairs::destroy(ibv_qp* abi_qp) {
  Qp& qp = Qp::of(abi_qp);
  if (!qp.multicast.empty())
    return because(EBUSY, "it is in {} multicast groups (ibv_detach_mcast)", qp.multicast.size());
  if (qp.raw != nullptr && qp.raw->flows.load() != 0)
    return because(EBUSY, "{} flows lead to it (ibv_destroy_flow)", qp.raw->flows.load());
  qp.retire();
  qp.async_events.await("ibv_destroy_qp", abi_qp);
  Pd* const pd = qp.pd;
  count_users(qp, -1);
  if (pd != nullptr) ++pd->users;  // until its memory is no longer in use
  table_.destroy(qp);
  if (pd != nullptr) --pd->users;
  return 0;
}

}  // namespace verbena::adapter
