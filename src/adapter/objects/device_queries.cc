// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstring>

#include "adapter/objects/limits.h"
#include "adapter/objects/software_context.h"
#include "adapter/transport/send_request.h"
#include "adapter/transport/tag_matching.h"
#include "base/device_clock.h"
#include "base/failed_call.h"
#include "base/log.h"
#include "control/model/link.h"
#include "wire/roce/packet.h"

namespace verbena::adapter {
namespace {

int check_port(unsigned port) {
  return port >= 1 && port <= kPorts
             ? 0
             : because(EINVAL, "there is no port {}, phys_port_cnt is {}", port, unsigned{kPorts});
}

// Refuses negative indexes as well.
int check_index(int64_t index, uint32_t length, const char* name) {
  return index >= 0 && index < length ? 0
                                      : because(EINVAL, "index {} is not below {} {}", index, name, length);
}

}  // namespace

int SoftwareContext::query_device(ibv_device_attr_ex* attr, size_t attr_size) {
  if (device_->is_gone()) return EIO;
  ibv_device_attr_ex all{};
  ibv_device_attr& a = all.orig_attr;
  std::strncpy(a.fw_ver, kFirmwareVersion, sizeof a.fw_ver - 1);
  a.node_guid = a.sys_image_guid = device_->guid();
  a.max_mr_size = UINT64_MAX;
  a.page_size_cap = 0xfffff000;
  a.vendor_id = 0xffffff;  // as rxe: no vendor
  a.max_qp = kMaxQp;
  a.max_qp_wr = kMaxQpWr;
  a.device_cap_flags = static_cast<unsigned>(kDeviceCapabilities);  // those that fit 32 bits
  all.device_cap_flags_ex = kDeviceCapabilities;
  a.max_sge = kMaxSge;
  a.max_sge_rd = kMaxSge;
  a.max_cq = kMaxCq;
  a.max_cqe = kMaxCqe;
  a.max_pd = kMaxPd;
  a.max_qp_rd_atom = kMaxReadAtomic;
  a.max_res_rd_atom = kMaxReadAtomic * kMaxQp;
  a.max_qp_init_rd_atom = kMaxReadAtomic;
  // Atomics are CPU instructions, and so atomic also with respect to the CPU, which IBV_ATOMIC_GLOB would
  // say. But rxe reports IBV_ATOMIC_HCA, and UCX requires exactly that.
  a.atomic_cap = IBV_ATOMIC_HCA;
  a.max_ah = kMaxAh;
  a.max_srq = kMaxSrq;
  a.max_srq_wr = kMaxSrqWr;
  a.max_srq_sge = kMaxSge;
  a.max_pkeys = kPkeyTableLength;
  a.max_mcast_grp = static_cast<int>(engine::MulticastGroups::kMax);
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
  fill_raw_packet_capabilities(all);
  std::memcpy(attr, &all, std::min(attr_size, sizeof all));
  return 0;
}

int SoftwareContext::query_port(uint8_t port, ibv_port_attr* attr) {
  if (device_->is_gone()) return EIO;
  if (const int error = check_port(port); error != 0) return error;
  const auto now = device_->link();
  const bool up = now != nullptr && device_->is_up(*now);
  if (now != nullptr && now->up && !up) {
    log_warning("port 1 of {} is DOWN: {}; programs of this host reach each other by memory", now->name,
                device_->engine()->no_wire_reason());
  }
  *attr = {};
  attr->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = path_mtu_of(now != nullptr ? now->mtu : 0);
  attr->gid_tbl_len = static_cast<int>(control::kGidTableLength);
  attr->port_cap_flags = IBV_PORT_CM_SUP;
  attr->max_msg_sz = transport::kMaxMessageBytes;
  attr->pkey_tbl_len = kPkeyTableLength;
  attr->max_vl_num = 1;
  const control::PortSpeed& speed = control::port_speed_of(now != nullptr ? now->speed : 0);
  attr->active_width = speed.width;
  attr->active_speed = speed.speed;
  // LinkUp, Polling or Disabled (IBTA volume 1, 14.2.5.6), as in rxe.
  attr->phys_state = up ? 5 : now != nullptr && now->up ? 2 : 3;
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

int SoftwareContext::query_gid(uint8_t port, int index, ibv_gid* gid) {
  if (const int error = check_port(port); error != 0) return error;
  if (const int error = check_index(index, control::kGidTableLength, "gid_tbl_len"); error != 0) return error;
  *gid = {};
  const auto now = device_->link();
  if (now == nullptr) return 0;
  for (const control::GidEntry& entry : now->gids) {
    if (entry.index == static_cast<uint32_t>(index)) std::memcpy(gid->raw, entry.gid.bytes.data(), 16);
  }
  return 0;
}

int SoftwareContext::query_gid_entry(uint8_t port, uint32_t index, ibv_gid_entry* entry) {
  if (const int error = check_port(port); error != 0) return error;
  if (const int error = check_index(index, control::kGidTableLength, "gid_tbl_len"); error != 0) return error;
  for (const ibv_gid_entry& found : gid_table()) {
    if (found.gid_index != index) continue;
    *entry = found;
    return 0;
  }
  return ENODATA;
}

std::vector<ibv_gid_entry> SoftwareContext::gid_table() {
  std::vector<ibv_gid_entry> table;
  const auto now = device_->link();
  if (now == nullptr) return table;
  for (const control::GidEntry& entry : now->gids) {
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
  if (const int error = check_port(port); error != 0) return error;
  if (const int error = check_index(index, kPkeyTableLength, "pkey_tbl_len"); error != 0) return error;
  *pkey = byteswap(roce::kDefaultPkey);
  return 0;
}

// Returns the clock as one number, as hardware drivers do: programs read tv_nsec alone and compare it with
// timestamps.
int SoftwareContext::query_rt_values(ibv_values_ex* values) {
  if ((values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0)
    return because(EINVAL, "comp_mask {:#x} asks for values that are unknown here", values->comp_mask);
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0)
    values->raw_clock = {.tv_sec = 0, .tv_nsec = static_cast<long>(device_clock())};
  return 0;
}

}  // namespace verbena::adapter
