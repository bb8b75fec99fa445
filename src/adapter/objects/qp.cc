// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/qp.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include "adapter/objects/completion_queues.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/queue_pairs.h"
#include "adapter/objects/send_rules.h"
#include "adapter/objects/software_context.h"
#include "adapter/queues/status_words.h"
#include "base/failed_call.h"

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

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

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

}  // namespace verbena::adapter
