// SPDX-License-Identifier: Apache-2.0
// ibv_modify_qp(3) and ibv_query_qp(3).
#include "adapter/objects/queue_pairs.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <set>
#include <string_view>

#include "adapter/memory/window.h"
#include "adapter/objects/found_route.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/send_rules.h"
#include "adapter/objects/software_context.h"
#include "adapter/queues/status_words.h"
#include "adapter/transport/forwarded_requests.h"
#include "adapter/transport/qp_state.h"
#include "adapter/transport/rc.h"
#include "adapter/transport/uc.h"
#include "adapter/transport/ud.h"
#include "base/failed_call.h"
#include "base/only_one.h"

namespace verbena::adapter {

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

Qp::Qp(OpenDevice& device, engine::Shard& on, std::shared_ptr<QpCore> shared)
    : ExtendedQp{},
      TableEntry(device),
      shard(on),
      account(qp_base.mutex, qp_base.cond),
      async_events(kQpEvents, {.element = {.qp = abi()}, .event_type = {}}, &account,
                   &qp_base.events_completed),
      core(std::move(shared)),
      transport(core->transport.get()),
      attributes(core->attributes),
      modifying(core->modifying) {}

int concerning_qp(const Qp& qp, int error) {
  if (error == 0 || log_level() < LogLevel::kError) return error;
  const auto link = qp.owner.link();
  return concerning(error, "QP {:#08x} of {} port {}", qp.transport->config().qpn.value(),
                    link != nullptr ? std::string_view(link->name) : "a device that is gone",
                    unsigned{kPorts});
}

void forget_completions(Qp& qp) {
  for (Cq* cq : {qp.send_cq, qp.recv_cq}) {
    if (cq != nullptr) cq->queue->remove_entries_of(qp.transport->config().qpn.value());
  }
}

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

roce::Address address_of(const ibv_gid& gid) {
  roce::Address address;
  std::memcpy(address.bytes.data(), gid.raw, address.bytes.size());
  return address;
}

// The LID is only stored: RoCE has none (IBTA annex A16, 16.5.2). The kernel, too, uses it only to tell
// attachments apart.
int attach_to_group(Qp& qp, const ibv_gid& gid, uint16_t lid) {
  OpenDevice& device = qp.owner;
  const MulticastBinding binding{address_of(gid), lid};
  if (qp.init.qp_type != IBV_QPT_UD)
    return because(EINVAL, "multicast is for queue pairs of IBV_QPT_UD, not {}",
                   queues::name_of(qp.init.qp_type));
  if (!binding.group.is_multicast())
    return because(EINVAL, "gid {} is not that of a multicast group: 224.0.0.0/4, or ff00::/8",
                   roce::text_of(binding.group));
  if (device.is_gone()) return EIO;
  if (device.inherited()) return ENODEV;
  const std::lock_guard modifying(qp.modifying);
  if (std::ranges::find(qp.multicast, binding) != qp.multicast.end()) return 0;
  try {
    qp.multicast.reserve(qp.multicast.size() + 1);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  const auto attached = device.engine()->multicast(qp.shard).attach(
      {device.index(), binding.group},
      {qp.transport, (qp.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0});
  if (!attached) return attached.error().code;
  qp.multicast.push_back(binding);
  return 0;
}

int detach_from_group(Qp& qp, const ibv_gid& gid, uint16_t lid) {
  const std::lock_guard modifying(qp.modifying);
  const auto bound = std::ranges::find(qp.multicast, MulticastBinding{address_of(gid), lid});
  if (bound == qp.multicast.end())
    return because(EINVAL, "the queue pair is not attached to {} with lid {:#x}",
                   roce::text_of(address_of(gid)), lid);
  leave_group(qp, *bound);
  qp.multicast.erase(bound);
  return 0;
}

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
  const auto* at = std::ranges::find(kTypes, type, &TypeRule::type);
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

// PSNs have 24 bits; like the kernel, the adapter masks larger numbers. A larger QPN is an error.
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint32_t kMaxQpn = 0xffffff;
// All attributes but rate limits, which are for raw packets only, and which cannot be queried (nor in
// rdma-core).
constexpr int kPlainMask = IBV_QP_RATE_LIMIT - 1;

// The maximum of each attribute, as in ib_modify_qp_is_ok() and modify_qp() of the kernel's uverbs and rxe.
struct AttributeBound {
  int mask;
  const char* name;
  uint32_t (*value)(const ibv_qp_attr&);
  uint32_t most;
  const char* limit = "";  // its name among the device's attributes
};
constexpr AttributeBound kAttributeBounds[] = {
    {IBV_QP_PKEY_INDEX, "pkey_index", [](const ibv_qp_attr& a) { return uint32_t{a.pkey_index}; },
     kPkeyTableLength - 1, " (pkey_tbl_len - 1)"},
    {IBV_QP_DEST_QPN, "dest_qp_num", [](const ibv_qp_attr& a) { return a.dest_qp_num; }, kMaxQpn},
    {IBV_QP_TIMEOUT, "timeout", [](const ibv_qp_attr& a) { return uint32_t{a.timeout}; }, 31},
    {IBV_QP_RETRY_CNT, "retry_cnt", [](const ibv_qp_attr& a) { return uint32_t{a.retry_cnt}; }, 7},
    {IBV_QP_RNR_RETRY, "rnr_retry", [](const ibv_qp_attr& a) { return uint32_t{a.rnr_retry}; }, 7},
    {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", [](const ibv_qp_attr& a) { return uint32_t{a.min_rnr_timer}; },
     31},
    {IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", [](const ibv_qp_attr& a) { return uint32_t{a.max_rd_atomic}; },
     kMaxReadAtomic, " (max_qp_init_rd_atom)"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic",
     [](const ibv_qp_attr& a) { return uint32_t{a.max_dest_rd_atomic}; }, kMaxReadAtomic,
     " (max_qp_rd_atom)"},
};

bool is_connected(ibv_qp_type type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

// Removes the attributes that only the other half of XRC has: programs set those of an RC QP on both halves.
// The kernel's uverbs ignore them, too (modify_qp_mask()).
int without_the_other_half(ibv_qp_type type, int mask) {
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (type == IBV_QPT_XRC_RECV)
    return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  return mask;
}

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

// The engine joins the group with the shard's first attached QP, and leaves it with the last.
int SoftwareContext::attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return concerning_qp(Qp::of(qp), attach_to_group(Qp::of(qp), *gid, lid));
}

int SoftwareContext::detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return concerning_qp(Qp::of(qp), detach_from_group(Qp::of(qp), *gid, lid));
}

void leave_group(Qp& qp, const MulticastBinding& binding) {
  // In a child after fork() the groups are the parent's, and the child receives nothing from them.
  OpenDevice& device = qp.owner;
  if (!device.inherited())
    device.engine()->multicast(qp.shard).detach({device.index(), binding.group}, *qp.transport);
}

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

int QueuePairs::check_attributes(const Qp& qp, const ibv_qp_attr& attr, int mask) const {
  const ibv_qp_state from = qp.transport->state();
  const ibv_qp_state assumed = (mask & IBV_QP_CUR_STATE) != 0 ? attr.cur_qp_state : from;
  if (assumed != from) {
    return because(EINVAL, "cur_qp_state is {}, but the queue pair is in {}", transport::name_of(assumed),
                   transport::name_of(from));
  }
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
  if (const int error = transport::check_transition(qp.init.qp_type, from, to, mask); error != 0)
    return error;
  if ((mask & IBV_QP_PORT) != 0 && (attr.port_num < 1 || attr.port_num > kPorts))
    return because(EINVAL, "port_num is {}, and the device has port 1 only", attr.port_num);
  for (const AttributeBound& bound : kAttributeBounds) {
    if ((mask & bound.mask) != 0 && bound.value(attr) > bound.most)
      return because(EINVAL, "{} {} exceeds {}{}", bound.name, bound.value(attr), bound.most, bound.limit);
  }
  if ((mask & IBV_QP_PATH_MTU) != 0) {
    // As in the kernel's rxe (rxe_qp_chk_attr()), path_mtu may exceed active_mtu, up to max_mtu. Shared
    // memory has no limit, and on the wire longer packets leave in IP fragments.
    if (mtu_bytes(attr.path_mtu) == 0)
      return because(EINVAL,
                     "path_mtu is {}, and has to be of enum ibv_mtu: IBV_MTU_256 (1) to IBV_MTU_4096 (5)",
                     static_cast<int>(attr.path_mtu));
  }
  // RoCE has no alternate paths: the kernel refuses them, and only stores the migration state.
  if ((mask & IBV_QP_ALT_PATH) != 0) return because(EINVAL, "RoCE has no alternate paths");
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0 && attr.path_mig_state > IBV_MIG_ARMED)
    return because(EINVAL, "there is no path_mig_state {}", static_cast<int>(attr.path_mig_state));
  return 0;
}

// Sets the attributes. Nothing is changed when one of them is wrong.
Result<void> QueuePairs::apply(Qp& qp, const ibv_qp_attr& attr, int mask) {
  transport::QpAttributes& t = qp.transport->attributes();
  ibv_qp_attr& kept = qp.attributes;
  if ((mask & IBV_QP_AV) != 0) {
    auto path = device_.resolve(attr.ah_attr);
    if (!path) return tl::unexpected(path.error());
    if ((mask & IBV_QP_PATH_MTU) != 0) {
      const transport::Route& route = qp.shard.routes().find(*path, roce::Qpn(attr.dest_qp_num));
      if (mtu_bytes(attr.path_mtu) > route.traits.max_payload) {
        return fail(because(EINVAL, "path_mtu is {} bytes, and the way to {} carries packets of {}",
                            mtu_bytes(attr.path_mtu), roce::text_of(path->destination),
                            route.traits.max_payload));
      }
    }
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

// Checks the route, as the kernel's RDMA core does when a program gives an address vector to a connected QP
// (_ib_modify_qp()). The kernel's answer takes system calls, so the shard is not locked meanwhile.
int QueuePairs::check_route(Qp& qp, const ibv_qp_attr& attr, int mask) const {
  if ((mask & IBV_QP_AV) == 0 || !is_connected(qp.init.qp_type)) return 0;
  if (const int wrong = qp.shard.exclusively([&] { return check_attributes(qp, attr, mask); }); wrong != 0)
    return wrong;
  const auto path = device_.resolve(attr.ah_attr);
  if (!path) return path.error().code;
  const auto checked = qp.shard.routes().check(*path, neighbour_patience(*path));
  return checked ? 0 : checked.error().code;
}

int QueuePairs::modify(ibv_qp* abi_qp, const ibv_qp_attr& attr, int mask) {
  if (device_.is_gone()) return EIO;
  Qp& qp = Qp::of(abi_qp);
  mask = without_the_other_half(qp.init.qp_type, mask);
  if ((mask & ~(qp.raw != nullptr ? kPlainMask | IBV_QP_RATE_LIMIT : kPlainMask)) != 0)
    return because(EOPNOTSUPP, "attr_mask {:#x} has bits that are not supported on {}", mask,
                   queues::name_of(qp.init.qp_type));
  const std::lock_guard modifying(qp.modifying);
  if (const int unreachable = check_route(qp, attr, mask); unreachable != 0) return unreachable;
  std::optional<transport::QpAttributes> connected;
  const int error = qp.shard.exclusively([&]() -> int {
    if (const int wrong = check_attributes(qp, attr, mask); wrong != 0) return wrong;
    if (auto applied = apply(qp, attr, mask); !applied) return applied.error().code;
    if (qp.init.qp_type == IBV_QPT_UD && (mask & IBV_QP_STATE) != 0 && attr.qp_state == IBV_QPS_RTR) {
      // A datagram is one packet of at most the port's MTU.
      const auto now = device_.link();
      qp.transport->attributes().path_mtu = mtu_bytes(path_mtu_of(now != nullptr ? now->mtu : 0));
    }
    const bool ends =
        (mask & IBV_QP_STATE) != 0 && (attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_RESET);
    if (ends) qp.shard.settle();
    const ibv_qp_state from = qp.transport->state();
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
    if (to == IBV_QPS_RESET) {
      qp.transport->attributes() = {};
      qp.attributes = {};
    }
    if (to != from || to == IBV_QPS_RESET) qp.transport->enter(to);
    // After a reset no completion of the QP is left, as with hardware drivers (pyverbs relies on it).
    if (to == IBV_QPS_RESET) forget_completions(qp);
    if ((mask & IBV_QP_STATE) != 0) abi_qp->state = to;
    auto& details = qp.shard.details_of(qp.transport->config().qpn).numbers;
    details[protocol::kQpPort].store(qp.attributes.port_num, std::memory_order_relaxed);
    details[protocol::kQpMigration].store(qp.attributes.path_mig_state, std::memory_order_relaxed);
    qp.shard.touched(*qp.transport);
    if (to == IBV_QPS_RTR && to != from && is_connected(qp.init.qp_type))
      connected = qp.transport->attributes();
    return 0;
  });
  // Both calls wait, so they are made outside of exclusively(). Other processes may still be writing by the
  // QP's old rights.
  if (error == 0) device_.engine()->await_direct_accesses();
  if (connected) device_.engine()->await_readiness(qp.shard, connected->path, connected->destination);
  return error;
}

// Writes the fields that ibv_cmd_query_qp() of libibverbs writes, and leaves en_sqd_async_notify and
// rate_limit alone.
int QueuePairs::query(ibv_qp* abi_qp, ibv_qp_attr& attr, int mask, ibv_qp_init_attr& init_attr) {
  Qp& qp = Qp::of(abi_qp);
  if ((mask & ~kPlainMask) != 0)
    return because(EOPNOTSUPP, "attr_mask {:#x} has bits that cannot be queried", mask);
  const std::lock_guard modifying(qp.modifying);
  qp.shard.exclusively([&] {
    const transport::QpAttributes& t = qp.transport->attributes();
    const ibv_qp_attr& kept = qp.attributes;
    attr.ah_attr = kept.ah_attr;
    attr.alt_ah_attr = kept.alt_ah_attr;
    attr.path_mtu = kept.path_mtu;
    attr.path_mig_state = kept.path_mig_state;
    attr.pkey_index = kept.pkey_index;
    attr.alt_pkey_index = kept.alt_pkey_index;
    attr.port_num = kept.port_num;
    attr.alt_port_num = kept.alt_port_num;
    attr.alt_timeout = kept.alt_timeout;
    attr.qp_state = attr.cur_qp_state = qp.transport->state();
    attr.qkey = t.qkey;
    attr.rq_psn = qp.transport->next_receive_psn().value();
    attr.sq_psn = qp.transport->next_send_psn().value();
    attr.dest_qp_num = t.destination.value();
    attr.qp_access_flags = t.access;
    attr.cap = qp.init.cap;
    attr.max_rd_atomic = t.max_rd_atomic;
    attr.max_dest_rd_atomic = t.max_dest_rd_atomic;
    attr.min_rnr_timer = t.min_rnr_timer;
    attr.timeout = t.timeout;
    attr.retry_cnt = t.retry_count;
    attr.rnr_retry = t.rnr_retry;
    attr.sq_draining = attr.qp_state == IBV_QPS_SQD && qp.transport->has_outstanding();
  });
  init_attr = {abi_qp->qp_context, abi_qp->send_cq, abi_qp->recv_cq,   abi_qp->srq,
               qp.init.cap,        abi_qp->qp_type, qp.init.sq_sig_all};
  return 0;
}

}  // namespace verbena::adapter
