// SPDX-License-Identifier: Apache-2.0
#include "adapter/software_context.h"

#include <algorithm>
#include <cstring>

#include "adapter/limits.h"
#include "agent_client/path_mtu.h"
#include "base/device_clock.h"
#include "base/log.h"
#include "memory/guarded.h"
#include "roce/packet.h"
#include "transport/tag_matching.h"

namespace verbena::adapter {
namespace {

using agent_client::Link;

// Capabilities that later headers name IBV_DEVICE_FLUSH_GLOBAL and IBV_DEVICE_ATOMIC_WRITE (the kernel's
// ib_user_verbs.h has them).
constexpr uint64_t kFlushGlobalFlag = 1ull << 38;
constexpr uint64_t kAtomicWriteFlag = 1ull << 40;

}  // namespace

ibv_mtu path_mtu_of(uint32_t netdev_mtu) {
  return static_cast<ibv_mtu>(agent_client::path_mtu_of(netdev_mtu));
}

uint32_t mtu_bytes(ibv_mtu mtu) {
  return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 0 : 128u << mtu;
}

Result<std::unique_ptr<provider::Context>> SoftwareContext::open(const Link& link, uint64_t guid) {
  auto file = CommandFile::create(link.name);
  if (!file) return tl::unexpected(file.error());
  return make(link, guid, std::move(*file));
}

Result<std::unique_ptr<provider::Context>> SoftwareContext::import(const Link& link, uint64_t guid,
                                                                   std::shared_ptr<CommandFile> file,
                                                                   int cmd_fd) {
  auto context = make(link, guid, std::move(file));
  if (!context) return tl::unexpected(context.error());
  (*context)->imported_fd_.reset(cmd_fd);
  (*context)->abi().context.cmd_fd = cmd_fd;
  return std::unique_ptr<provider::Context>(std::move(*context));
}

Result<std::unique_ptr<SoftwareContext>> SoftwareContext::make(const Link& link, uint64_t guid,
                                                               std::shared_ptr<CommandFile> file) {
  auto engine = engine::Engine::acquire();
  if (!engine) return tl::unexpected(engine.error());
  auto events = queues::EventChannel::create();
  if (!events) return tl::unexpected(events.error());
  memory::install_fault_guard();
  std::unique_ptr<SoftwareContext> context(
      new SoftwareContext(std::move(*engine), std::move(*events), std::move(file), link.device_index, guid));
  if (context->link() == nullptr) return fail(ENODEV);  // gone since it was listed
  (*context).engine_->subscribe(*context);
  context->command_file_->join(*context);
  return context;
}

SoftwareContext::SoftwareContext(std::shared_ptr<engine::Engine> engine,
                                 std::unique_ptr<queues::EventChannel> events,
                                 std::shared_ptr<CommandFile> command_file, uint32_t device_index,
                                 uint64_t guid)
    : engine_(std::move(engine)),
      events_(std::move(events)),
      command_file_(std::move(command_file)),
      device_index_(device_index),
      guid_(guid),
      port_events_(kPortEvents, {.element = {.port_num = 1}, .event_type = {}}, nullptr) {
  ibv_context& abi_context = abi().context;
  abi_context.async_fd = events_->fd();
  // Nothing is ever told through it; but programs poll, dup and keep it as they would /dev/infiniband's.
  abi_context.cmd_fd = command_file_->device_memory()->fd();
  abi_context.num_comp_vectors = kCompletionVectors;
  fill_data_path(abi_context.ops);
}

// Users before what they use. Nobody waits for events to be acknowledged: whoever closes a device has given
// them up.
SoftwareContext::~SoftwareContext() {
  engine_->unsubscribe(*this);
  command_file_->leave(*this);
  const auto destroy_all = [](auto& list, auto before) {
    while (!list.empty()) {
      auto& object = list.pop_front();
      before(object);
      delete &object;
    }
  };
  destroy_all(flows_, [&](Flow& flow) { uproot(flow); });
  destroy_all(qps_, [&](Qp& qp) { retire(qp); });
  destroy_all(rwq_tables_, [](RwqIndTable&) {});
  destroy_all(wqs_, [&](Wq& wq) { retire(wq); });
  destroy_all(counters_, [](Counters&) {});
  destroy_all(srqs_, [&](Srq& srq) { retire(srq); });
  destroy_all(xrcds_, [](Xrcd&) {});
  destroy_all(ahs_, [](Ah&) {});
  destroy_all(cqs_, [&](Cq& cq) { withdraw_events(cq); });
  destroy_all(channels_, [](CompChannel&) {});
  destroy_all(mws_, [&](Mw& mw) { retire(mw); });
  destroy_all(mrs_, [](Mr&) {});
  destroy_all(dms_, [&](Dm& dm) {
    if (engine_->inherited()) dm.memory->abandon();
  });
  destroy_all(pds_, [](Pd&) {});
  destroy_all(tds_, [](Td&) {});
  if (!engine_->inherited()) port_events_.withdraw(events());
}

std::shared_ptr<const Link> SoftwareContext::link() const {
  return engine_->link(device_index_);
}

// ---- queries

int SoftwareContext::query_device(ibv_device_attr_ex* attr, size_t attr_size) {
  if (is_gone()) return EIO;
  ibv_device_attr_ex all{};
  ibv_device_attr& a = all.orig_attr;
  std::strncpy(a.fw_ver, "0.1.0", sizeof a.fw_ver - 1);
  a.node_guid = a.sys_image_guid = guid_;
  a.max_mr_size = UINT64_MAX;
  a.page_size_cap = 0xfffff000;
  a.vendor_id = 0xffffff;  // as rxe: no vendor
  a.max_qp = kMaxQp;
  a.max_qp_wr = kMaxQpWr;
  a.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_UD_AV_PORT_ENFORCE |
                       IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                       IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC;
  fill_raw_packet_capabilities(all);
  all.device_cap_flags_ex = a.device_cap_flags | kFlushGlobalFlag | kAtomicWriteFlag;
  a.max_sge = kMaxSge;
  a.max_sge_rd = kMaxSge;
  a.max_cq = kMaxCq;
  a.max_cqe = kMaxCqe;
  a.max_pd = kMaxPd;
  a.max_qp_rd_atom = kMaxReadAtomic;
  a.max_res_rd_atom = kMaxReadAtomic * kMaxQp;
  a.max_qp_init_rd_atom = kMaxReadAtomic;
  a.atomic_cap = IBV_ATOMIC_GLOB;  // they are the processor's own
  a.max_ah = kMaxAh;
  a.max_srq = kMaxSrq;
  a.max_srq_wr = kMaxSrqWr;
  a.max_srq_sge = kMaxSge;
  a.max_pkeys = kPkeyTableLength;
  a.max_mcast_grp = static_cast<int>(engine::MulticastGroups::kMost);
  a.max_mcast_qp_attach = kMaxQp;
  a.max_total_mcast_qp_attach = a.max_mcast_grp * a.max_mcast_qp_attach;
  a.local_ca_ack_delay = 15;
  a.phys_port_cnt = kPorts;
  all.phys_port_cnt_ex = kPorts;
  all.tm_caps.max_rndv_hdr_size = transport::kMaxRendezvousMessage;
  all.tm_caps.max_num_tags = kMaxTags;
  all.tm_caps.max_ops = kMaxTagOperations;
  all.tm_caps.max_sge = kMaxSge;
  all.tm_caps.flags = IBV_TM_CAP_RC;
  all.completion_timestamp_mask = ~uint64_t{0};
  all.hca_core_clock = kDeviceClockKhz;
  all.cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX};
  fill_memory_attributes(all);
  std::memcpy(attr, &all, std::min(attr_size, sizeof all));
  return 0;
}

int SoftwareContext::query_port(uint8_t port, ibv_port_attr* attr) {
  if (is_gone()) return EIO;
  if (port != 1) return EINVAL;
  const auto now = link();
  const bool up = now != nullptr && is_up(*now);
  if (now != nullptr && now->up && !up) {
    log_warning("port 1 of {} is down: {}", now->name, engine_->no_wire_reason());
  }
  std::memset(attr, 0, sizeof *attr);
  attr->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = path_mtu_of(now != nullptr ? now->mtu : 0);
  attr->gid_tbl_len = static_cast<int>(agent_client::kGidTableLength);
  attr->port_cap_flags = IBV_PORT_CM_SUP;
  attr->max_msg_sz = kMaxMessageBytes;
  attr->pkey_tbl_len = kPkeyTableLength;
  attr->max_vl_num = 1;
  attr->active_width = 1;
  attr->active_speed = 1;
  // As rxe: LinkUp, Polling, Disabled (IBTA volume 1, 14.2.5.6).
  attr->phys_state = up ? 5 : now != nullptr && now->up ? 2 : 3;
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int SoftwareContext::query_gid(uint8_t port, int index, ibv_gid* gid) {
  if (port != 1 || index < 0 || index >= static_cast<int>(agent_client::kGidTableLength)) return EINVAL;
  std::memset(gid, 0, sizeof *gid);
  const auto now = link();
  if (now == nullptr) return 0;
  for (const agent_client::GidEntry& entry : now->gids) {
    if (entry.index == static_cast<uint32_t>(index)) std::memcpy(gid->raw, entry.gid.bytes.data(), 16);
  }
  return 0;
}

int SoftwareContext::query_gid_entry(uint8_t port, uint32_t index, ibv_gid_entry* entry) {
  if (port != 1 || index >= agent_client::kGidTableLength) return EINVAL;
  for (const ibv_gid_entry& found : gid_table()) {
    if (found.gid_index != index) continue;
    *entry = found;
    return 0;
  }
  return ENODATA;
}

std::vector<ibv_gid_entry> SoftwareContext::gid_table() {
  std::vector<ibv_gid_entry> table;
  const auto now = link();
  if (now == nullptr) return table;
  for (const agent_client::GidEntry& entry : now->gids) {
    ibv_gid_entry out{};
    std::memcpy(out.gid.raw, entry.gid.bytes.data(), 16);
    out.gid_index = entry.index;
    out.port_num = 1;
    out.gid_type = IBV_GID_TYPE_ROCE_V2;
    out.ndev_ifindex = now->interface_index;
    table.push_back(out);
  }
  return table;
}

int SoftwareContext::query_pkey(uint8_t port, int index, __be16* pkey) {
  if (port != 1 || index < 0 || index >= kPkeyTableLength) return EINVAL;
  *pkey = byteswap(roce::kDefaultPkey);
  return 0;
}

// The clock in one number, as hardware drivers tell it: programs read tv_nsec alone and compare it with
// timestamps.
int SoftwareContext::query_rt_values(ibv_values_ex* values) {
  if ((values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0)
    values->raw_clock = {.tv_sec = 0, .tv_nsec = static_cast<long>(device_clock())};
  return 0;
}

// ---- events of the port

void SoftwareContext::on_links(const std::vector<Link>& before, const std::vector<Link>& now) {
  const auto find = [&](const std::vector<Link>& links) -> const Link* {
    const auto at = std::find_if(links.begin(), links.end(),
                                 [&](const Link& l) { return l.device_index == device_index_; });
    return at == links.end() ? nullptr : &*at;
  };
  const Link* was = find(before);
  const Link* is = find(now);
  if (was == nullptr) return;
  if (is == nullptr) {
    disappear();
    return;
  }
  if (is_up(*was) != is_up(*is)) {
    port_events_.post(is_up(*is) ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, events());
  }
  if (was->gids != is->gids) port_events_.post(IBV_EVENT_GID_CHANGE, events());
}

// The link was deleted. As when the kernel takes a device away: the application is told, once and for all,
// its requests are flushed, and whatever it asks for from here on answers EIO; what it has it may destroy.
void SoftwareContext::disappear() {
  if (gone_.exchange(true)) return;
  {
    const std::lock_guard guard(objects_mutex_);
    for (Qp& qp : qps_) {
      qp.shard.exclusively([&] {
        const ibv_qp_state state = qp.transport->state();
        if (state == IBV_QPS_RESET || state == IBV_QPS_ERR) return;
        qp.transport->enter(IBV_QPS_ERR);
        qp.shard.touched(*qp.transport);
      });
    }
  }
  port_events_.post(IBV_EVENT_DEVICE_FATAL, events());
  events().end();
}

// ---- addresses

Result<roce::Path> SoftwareContext::resolve(const ibv_ah_attr& attr) const {
  // RoCE knows global addresses only.
  if (attr.is_global == 0 || attr.port_num != 1) return fail(EINVAL);
  const auto now = link();
  if (now == nullptr) return fail(ENODEV);
  const auto entry = std::find_if(now->gids.begin(), now->gids.end(), [&](const agent_client::GidEntry& e) {
    return e.index == attr.grh.sgid_index;
  });
  if (entry == now->gids.end()) return fail(EINVAL);
  roce::Path path;
  path.source = entry->gid;
  std::memcpy(path.destination.bytes.data(), attr.grh.dgid.raw, 16);
  const bool multicast = path.destination.is_multicast();
  if (multicast && path.destination.is_ipv4() != path.source.is_ipv4()) {
    // Programs choose their GID by one measure and the group by another (perftest's is an IPv6 address by
    // default): the datagram leaves from the link's address of the group's family.
    const auto other = std::ranges::find_if(now->gids, [&](const agent_client::GidEntry& e) {
      return e.gid.is_ipv4() == path.destination.is_ipv4();
    });
    if (other != now->gids.end()) path.source = other->gid;
  }
  if (path.destination.is_zero() || path.destination.is_ipv4() != path.source.is_ipv4()) return fail(EINVAL);
  if (path.destination.is_link_local() || multicast) path.interface_index = now->interface_index;
  path.flow_label = attr.grh.flow_label & 0xfffff;
  path.traffic_class = attr.grh.traffic_class;
  // The kernel, too, takes the hop limit of the route and not the attribute's (ibv_rc_pingpong asks for 1).
  // For a group there is no such route.
  path.hop_limit = multicast ? std::max<uint8_t>(attr.grh.hop_limit, 1) : 64;
  return path;
}

Result<ibv_ah*> SoftwareContext::create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (is_gone()) return fail(EIO);
  auto path = resolve(*attr);
  if (!path) return tl::unexpected(path.error());
  auto ah = std::make_unique<Ah>();
  ah->context = &abi().context;
  ah->pd = pd;
  ah->handle = next_handle();
  ah->path = *path;
  ++Pd::of(pd).users;
  const std::lock_guard guard(objects_mutex_);
  ahs_.push_back(*ah);
  return ah.release();
}

int SoftwareContext::destroy_ah(ibv_ah* ah) {
  --Pd::of(ah->pd).users;
  const std::lock_guard guard(objects_mutex_);
  delete &Ah::of(ah);
  return 0;
}

int SoftwareContext::resolve_eth_l2_from_gid(ibv_ah_attr* attr, uint8_t mac[6], uint16_t* vlan) {
  if (auto path = resolve(*attr); !path) return path.error().code;
  // Below IP the operating system finds the way; our own address is as good an answer as any and always
  // there.
  const auto now = link();
  if (now == nullptr) return ENODEV;
  std::memcpy(mac, now->mac.data(), 6);
  if (vlan != nullptr) *vlan = 0xffff;
  return 0;
}

}  // namespace verbena::adapter
