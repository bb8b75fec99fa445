// SPDX-License-Identifier: Apache-2.0
// Queue pairs for raw Ethernet frames (IBV_QPT_RAW_PACKET).
#include <algorithm>
#include <bit>
#include <mutex>

#include "adapter/objects/data_path.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/queue_pairs.h"
#include "adapter/objects/send_rules.h"
#include "adapter/objects/software_context.h"
#include "adapter/transport/qp_state.h"
#include "adapter/transport/raw.h"
#include "base/failed_call.h"

namespace verbena::adapter {

namespace {

constexpr uint64_t kHashFields = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 |
                                 IBV_RX_HASH_DST_IPV6 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP |
                                 IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
static_assert(int{ethernet::kHashSourceIpv4} == IBV_RX_HASH_SRC_IPV4 &&
              int{ethernet::kHashDestinationIpv6} == IBV_RX_HASH_DST_IPV6 &&
              int{ethernet::kHashDestinationTcp} == IBV_RX_HASH_DST_PORT_TCP &&
              int{ethernet::kHashDestinationUdp} == IBV_RX_HASH_DST_PORT_UDP);

// Fields that exclude each other (enum ibv_rx_hash_fields).
constexpr uint64_t kExclusive[][2] = {
    {IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4, IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6},
    {IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP,
     IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP},
};

constexpr uint32_t kScaling = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;

Result<transport::ReceiveScaling> scaling_of(const ibv_qp_init_attr_ex& attr) {
  const ibv_rx_hash_conf& hash = attr.rx_hash_conf;
  if (hash.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ) return fail(EOPNOTSUPP);
  if (hash.rx_hash_key_len != ethernet::kHashKeyBytes)
    return fail(because(EINVAL, "rx_hash_key_len is {}, and must be {}", hash.rx_hash_key_len,
                        size_t{ethernet::kHashKeyBytes}));
  if (hash.rx_hash_key == nullptr) return fail(because(EINVAL, "rx_hash_key is null"));
  if ((hash.rx_hash_fields_mask & ~kHashFields) != 0) return fail(EOPNOTSUPP);
  for (const auto& [one, other] : kExclusive) {
    if ((hash.rx_hash_fields_mask & one) != 0 && (hash.rx_hash_fields_mask & other) != 0)
      return fail(because(EINVAL, "rx_hash_fields_mask {:#x} has fields of IPv4 and IPv6, or of TCP and UDP",
                          uint64_t{hash.rx_hash_fields_mask}));
  }
  transport::ReceiveScaling scaling;
  scaling.fields = static_cast<uint8_t>(hash.rx_hash_fields_mask);
  std::copy_n(hash.rx_hash_key, scaling.key.size(), scaling.key.begin());
  for (const Wq* wq : RwqIndTable::of(attr.rwq_ind_tbl).queues) scaling.table.push_back(wq->queue.get());
  return scaling;
}

bool strips_vlan(const ibv_qp_init_attr_ex& attr) {
  return (attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
         (attr.create_flags & IBV_QP_CREATE_CVLAN_STRIPPING) != 0;
}

constexpr uint32_t kFlags = IBV_WQ_FLAGS_CVLAN_STRIPPING;

uint32_t flags_of(const ibv_wq_init_attr& attr) {
  return (attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 ? attr.create_flags : 0;
}

int post_recv(ibv_wq* abi, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Wq& wq = Wq::of(abi);
  transport::ReceiveWorkQueue& queue = *wq.queue;
  Posted posted;
  bool flush = false;
  {
    const std::lock_guard guard(queue.lock());
    if (queue.state() == IBV_WQS_RESET) {
      posted.error = because(EINVAL, "the work queue is in RESET; ibv_post_wq_recv needs RDY");
      posted.failed = wr;
    } else {
      posted = fill_receives(queue.queue(), wq.max_sge, wr);
      queue.queue().publish(posted.count);
    }
    flush = queue.state() == IBV_WQS_ERR;
  }
  if (posted.error != 0 && bad_wr != nullptr) *bad_wr = posted.failed;
  if (posted.error != 0) say_call_failed("ibv_post_wq_recv", posted.error);
  if (flush) wq.shard.exclusively([&] { queue.flush(); });
  return posted.error;
}

// The state machine of ibv_modify_wq(3): RESET is reached from all states, RDY from RESET and RDY, ERR from
// RDY and ERR.
bool may_go(ibv_wq_state from, ibv_wq_state to) {
  if (to == IBV_WQS_RESET) return true;
  if (to == IBV_WQS_RDY) return from != IBV_WQS_ERR;
  return to == IBV_WQS_ERR && from != IBV_WQS_RESET;
}

}  // namespace

void fill_raw_packet_capabilities(ibv_device_attr_ex& attr) {
  attr.orig_attr.device_cap_flags |= static_cast<unsigned>(kRawPacketCapabilities);
  attr.orig_attr.max_raw_ethy_qp = kMaxQp;
  attr.rss_caps.supported_qpts = 1u << IBV_QPT_RAW_PACKET;
  attr.rss_caps.max_rwq_indirection_tables = kMaxRwqTables;
  attr.rss_caps.max_rwq_indirection_table_size = 1u << kMaxLogRwqTable;
  attr.rss_caps.rx_hash_fields_mask = kHashFields;
  attr.rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
  attr.max_wq_type_rq = kMaxWq;
  attr.packet_pacing_caps = {1, UINT32_MAX, 1u << IBV_QPT_RAW_PACKET};
  attr.raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING | IBV_RAW_PACKET_CAP_IP_CSUM;
}

void RawSide::after_receives(Qp& qp) {
  if (!static_cast<transport::RawQueuePair*>(qp.transport)->waited_for()) return;
  qp.shard.exclusively([&] { link->resume(); });
}

void RawSide::limit_rate(Qp& qp, uint32_t rate, uint32_t burst) {
  static_cast<transport::RawQueuePair*>(qp.transport)->limit_rate(rate, burst);
  qp.attributes.rate_limit = rate;
}

int QueuePairs::modify_rate_limit(ibv_qp* abi_qp, const ibv_qp_rate_limit_attr& attr) {
  Qp& qp = Qp::of(abi_qp);
  if (qp.raw == nullptr || qp.raw->table != nullptr) return EOPNOTSUPP;
  if (attr.comp_mask != 0) return because(EINVAL, "comp_mask {:#x} is not 0", attr.comp_mask);
  const std::lock_guard modifying(qp.modifying);
  return qp.shard.exclusively([&] {
    if (qp.transport->state() != IBV_QPS_RTS)
      return because(EINVAL, "the queue pair is in {}, a rate needs RTS",
                     transport::name_of(qp.transport->state()));
    qp.raw->limit_rate(qp, attr.rate_limit, attr.max_burst_sz);
    qp.shard.touched(*qp.transport);
    return 0;
  });
}

int QueuePairs::check_raw(const ibv_qp_init_attr_ex& attr) const {
  if (attr.srq != nullptr) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || !device_.made(attr.pd))
    return because(EINVAL, "pd is missing, or none of this ibv_context");
  if ((attr.comp_mask & kScaling) == 0) {
    if (!device_.made(attr.send_cq)) return because(EINVAL, "send_cq is null, or none of this ibv_context");
    if (!device_.made(attr.recv_cq)) return because(EINVAL, "recv_cq is null, or none of this ibv_context");
    return check_capacities(attr.cap);
  }
  // A QP that spreads received packets has no queues of its own and does not send, as in the kernel.
  if ((attr.comp_mask & kScaling) != kScaling)
    return because(EINVAL, "comp_mask {:#x} lacks IBV_QP_INIT_ATTR_IND_TABLE or _RX_HASH", attr.comp_mask);
  if (!device_.made(attr.rwq_ind_tbl))
    return because(EINVAL, "rwq_ind_tbl is null, or none of this ibv_context");
  const ibv_qp_cap& cap = attr.cap;
  if (cap.max_send_wr != 0 || cap.max_recv_wr != 0 || cap.max_send_sge != 0 || cap.max_recv_sge != 0)
    return because(EINVAL, "cap is not 0, and a queue pair with rwq_ind_tbl has no queues of its own");
  return check_capacities(cap);
}

Result<ibv_qp*> QueuePairs::create_raw(ibv_qp_init_attr_ex& attr) {
  if (const int error = check_raw(attr); error != 0) return fail(error);
  const auto now = device_.link();
  if (now == nullptr) return fail(ENODEV);
  auto ethernet = engine::EthernetLink::acquire(device_.home(), now->interface_index);
  if (!ethernet) return tl::unexpected(ethernet.error());
  auto raw = std::make_unique<RawSide>(std::move(*ethernet));
  const bool scales = (attr.comp_mask & kScaling) != 0;
  return scales ? create_scaling(attr, std::move(raw)) : create_plain_raw(attr, std::move(raw));
}

Result<ibv_qp*> QueuePairs::create_plain_raw(ibv_qp_init_attr_ex& attr, std::unique_ptr<RawSide> raw) {
  ibv_qp_cap cap = attr.cap;
  round_up(cap);
  auto parts = reserve(attr, attr.pd, cap);
  if (!parts) return tl::unexpected(parts.error());
  parts->config.send_cq = Cq::of(attr.send_cq).queue.get();
  parts->config.recv_cq = Cq::of(attr.recv_cq).queue.get();
  auto transport = std::make_unique<transport::RawQueuePair>(parts->config, std::move(parts->rings.send),
                                                             std::move(parts->rings.recv), &raw->sender,
                                                             strips_vlan(attr));
  raw->sender.set_owner(transport.get());
  parts->core->transport = std::move(transport);
  auto qp = make(std::move(*parts), attr, cap);
  qp->raw = std::move(raw);
  qp->send_opcodes = executed_opcodes(kRawService);
  return add(std::move(qp), attr);
}

Result<ibv_qp*> QueuePairs::create_scaling(ibv_qp_init_attr_ex& attr, std::unique_ptr<RawSide> raw) {
  auto scaling = scaling_of(attr);
  if (!scaling) return tl::unexpected(scaling.error());
  auto parts = reserve(attr, attr.pd, attr.cap);
  if (!parts) return tl::unexpected(parts.error());
  parts->core->transport = std::make_unique<transport::RawQueuePair>(parts->config, std::move(*scaling));
  raw->table = &RwqIndTable::of(attr.rwq_ind_tbl);
  auto qp = make(std::move(*parts), attr, attr.cap);
  qp->raw = std::move(raw);
  // Whatever the program asked for: the queues of the table have their own CQs.
  qp->init.send_cq = qp->init.recv_cq = nullptr;
  return add(std::move(qp), attr);
}

Wq::Wq(OpenDevice& device)
    : VerbsObject(device),
      shard(device.home()),
      account(mutex, cond),
      async_events(kWqEvents, {.element = {.wq = this}, .event_type = {}}, &account, &events_completed) {}

static int check(const ibv_wq_init_attr& attr, const OpenDevice& device) {
  if ((attr.comp_mask & ~uint32_t{IBV_WQ_INIT_ATTR_FLAGS}) != 0) return EOPNOTSUPP;
  if ((flags_of(attr) & ~kFlags) != 0) return EOPNOTSUPP;
  if (attr.wq_type != IBV_WQT_RQ)
    return because(EINVAL, "there is no wq_type {}", static_cast<int>(attr.wq_type));
  if (!device.made(attr.pd)) return because(EINVAL, "pd is null, or none of this ibv_context");
  if (!device.made(attr.cq)) return because(EINVAL, "cq is null, or none of this ibv_context");
  if (attr.max_wr == 0) return because(EINVAL, "max_wr is 0");
  if (attr.max_wr > uint32_t{kMaxQpWr})
    return because(EINVAL, "max_wr {} exceeds max_qp_wr {}", attr.max_wr, kMaxQpWr);
  if (attr.max_sge > uint32_t{kMaxSge})
    return because(EINVAL, "max_sge {} exceeds the device's max_sge {}", attr.max_sge, kMaxSge);
  return 0;
}

Result<ibv_wq*> SoftwareContext::create_wq(ibv_wq_init_attr* init) {
  ibv_wq_init_attr& attr = *init;
  if (device_->is_gone()) return fail(EIO);
  if (const int error = check(attr, *device_); error != 0) return fail(error);
  const uint32_t max_wr = std::bit_ceil(attr.max_wr);
  const uint32_t max_sge = std::max(attr.max_sge, 1u);
  auto ring = queues::RecvQueue::create(max_wr, max_sge * static_cast<uint32_t>(sizeof(ibv_sge)));
  if (!ring) return tl::unexpected(ring.error());
  auto made = work_queues_.make(*device_);
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<Wq> wq = std::move(*made);
  // Numbered among the QPs, because completions identify queues of both kinds by number.
  auto number = wq->shard.exclusively([&] { return wq->shard.reserve_qpn(); });
  if (!number) return tl::unexpected(number.error());
  const transport::FrameReceiptConfig config{Pd::of(attr.pd).id, number->value(),
                                             (flags_of(attr) & IBV_WQ_FLAGS_CVLAN_STRIPPING) != 0,
                                             Cq::of(attr.cq).queue.get()};
  wq->queue =
      std::make_unique<transport::ReceiveWorkQueue>(config, device_->keys(), std::move(*ring), wq.get());
  wq->max_sge = max_sge;
  wq->wq_context = attr.wq_context;
  wq->pd = attr.pd;
  wq->cq = attr.cq;
  wq->domain = &Pd::of(attr.pd);
  wq->completions = &Cq::of(attr.cq);
  wq->wq_num = number->value();
  wq->handle = device_->next_handle();
  wq->state = IBV_WQS_RESET;
  wq->wq_type = attr.wq_type;
  wq->post_recv = post_recv;
  attr.max_wr = max_wr;
  attr.max_sge = max_sge;
  ++Pd::of(attr.pd).users;
  ++Cq::of(attr.cq).users;
  Cq::of(attr.cq).joined_by(wq->shard);
  return work_queues_.add(std::move(wq));
}

int SoftwareContext::modify_wq(ibv_wq* abi_wq, const ibv_wq_attr* attr) {
  if (device_->is_gone()) return EIO;
  constexpr uint32_t kKnown = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
  if ((attr->attr_mask & ~kKnown) != 0)
    return because(EINVAL, "attr_mask {:#x} has bits that are unknown here", attr->attr_mask);
  Wq& wq = Wq::of(abi_wq);
  const std::lock_guard modifying(wq.modifying);
  return wq.shard.exclusively([&]() -> int {
    const ibv_wq_state from = wq.queue->state();
    if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0 && attr->curr_wq_state != from)
      return because(EINVAL, "curr_wq_state is {}, but the queue is in state {}",
                     static_cast<int>(attr->curr_wq_state), static_cast<int>(from));
    const bool moves = (attr->attr_mask & IBV_WQ_ATTR_STATE) != 0;
    if (moves && !may_go(from, attr->wq_state))
      return because(EINVAL, "a work queue does not go from state {} to {} (enum ibv_wq_state)",
                     static_cast<int>(from), static_cast<int>(attr->wq_state));
    const bool sets_flags = (attr->attr_mask & IBV_WQ_ATTR_FLAGS) != 0;
    if (sets_flags && (attr->flags_mask & ~kFlags) != 0) return EOPNOTSUPP;

    if (sets_flags && (attr->flags_mask & IBV_WQ_FLAGS_CVLAN_STRIPPING) != 0)
      wq.queue->strip_vlan((attr->flags & IBV_WQ_FLAGS_CVLAN_STRIPPING) != 0);
    if (!moves) return 0;
    if (attr->wq_state != from || attr->wq_state == IBV_WQS_RESET) wq.queue->enter(attr->wq_state);
    if (attr->wq_state == IBV_WQS_RESET) wq.completions->queue->remove_entries_of(wq.queue->number());
    abi_wq->state = attr->wq_state;
    return 0;
  });
}

void Wq::retire() {
  // All inside one section: another queue may get the number as soon as it is released.
  shard.exclusively([&] {
    completions->queue->remove_entries_of(queue->number());
    shard.release_qpn(roce::Qpn(queue->number()));
  });
  if (!owner.inherited()) async_events.withdraw(owner.events());
}

int SoftwareContext::destroy_wq(ibv_wq* abi_wq) {
  Wq& wq = Wq::of(abi_wq);
  if (wq.users.load() != 0)
    return because(EBUSY, "{} entries of indirection tables name it", wq.users.load());
  wq.retire();
  wq.async_events.await("ibv_destroy_wq", abi_wq);
  wq.completions->left_by(wq.shard);
  --wq.completions->users;
  --wq.domain->users;
  work_queues_.destroy(wq);
  return 0;
}

Result<ibv_rwq_ind_table*> SoftwareContext::create_rwq_ind_table(const ibv_rwq_ind_table_init_attr* attr) {
  if (device_->is_gone()) return fail(EIO);
  if (attr->comp_mask != 0) return fail(EOPNOTSUPP);
  if (attr->log_ind_tbl_size > kMaxLogRwqTable)
    return fail(because(EINVAL, "log_ind_tbl_size {} exceeds {}", attr->log_ind_tbl_size, kMaxLogRwqTable));
  if (attr->ind_tbl == nullptr) return fail(because(EINVAL, "ind_tbl is null"));
  auto made = indirection_tables_.make(*device_);
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<RwqIndTable> table = std::move(*made);
  for (uint32_t i = 0; i < 1u << attr->log_ind_tbl_size; ++i) {
    ibv_wq* wq = attr->ind_tbl[i];
    if (!device_->made(wq)) return fail(because(EINVAL, "ind_tbl[{}] is no ibv_wq of this ibv_context", i));
    table->queues.push_back(&Wq::of(wq));
  }
  for (Wq* wq : table->queues) ++wq->users;
  table->ind_tbl_handle = static_cast<int>(device_->next_handle());
  table->ind_tbl_num = table->ind_tbl_handle;
  return indirection_tables_.add(std::move(table));
}

int SoftwareContext::destroy_rwq_ind_table(ibv_rwq_ind_table* abi_table) {
  RwqIndTable& table = RwqIndTable::of(abi_table);
  if (table.users.load() != 0) return because(EBUSY, "{} queue pairs use it", uint32_t{table.users.load()});
  for (Wq* wq : table.queues) --wq->users;
  indirection_tables_.destroy(table);
  return 0;
}

}  // namespace verbena::adapter
