// SPDX-License-Identifier: Apache-2.0
// Queue pairs for raw Ethernet frames (IBV_QPT_RAW_PACKET).
#include <algorithm>

#include "adapter/objects/completion_queues.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/qp.h"
#include "adapter/objects/queue_pairs.h"
#include "adapter/objects/send_rules.h"
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

}  // namespace verbena::adapter
