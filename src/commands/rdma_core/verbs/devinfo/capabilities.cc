// SPDX-License-Identifier: Apache-2.0
#include "base/format.h"
#include "commands/rdma_core/verbs/devinfo/device.h"

namespace verbena::rdma_core {
namespace {

using Json = Sheet::Json;

constexpr int kTsoColumn = 48;
constexpr int kRssColumn = 64;

constexpr Flag kCapabilities[] = {{IBV_DEVICE_RESIZE_MAX_WR, "RESIZE_MAX_WR"},
                                  {IBV_DEVICE_BAD_PKEY_CNTR, "BAD_PKEY_CNTR"},
                                  {IBV_DEVICE_BAD_QKEY_CNTR, "BAD_QKEY_CNTR"},
                                  {IBV_DEVICE_RAW_MULTI, "RAW_MULTI"},
                                  {IBV_DEVICE_AUTO_PATH_MIG, "AUTO_PATH_MIG"},
                                  {IBV_DEVICE_CHANGE_PHY_PORT, "CHANGE_PHY_PORT"},
                                  {IBV_DEVICE_UD_AV_PORT_ENFORCE, "UD_AV_PORT_ENFORCE"},
                                  {IBV_DEVICE_CURR_QP_STATE_MOD, "CURR_QP_STATE_MOD"},
                                  {IBV_DEVICE_SHUTDOWN_PORT, "SHUTDOWN_PORT"},
                                  {IBV_DEVICE_INIT_TYPE, "INIT_TYPE"},
                                  {IBV_DEVICE_PORT_ACTIVE_EVENT, "PORT_ACTIVE_EVENT"},
                                  {IBV_DEVICE_SYS_IMAGE_GUID, "SYS_IMAGE_GUID"},
                                  {IBV_DEVICE_RC_RNR_NAK_GEN, "RC_RNR_NAK_GEN"},
                                  {IBV_DEVICE_SRQ_RESIZE, "SRQ_RESIZE"},
                                  {IBV_DEVICE_N_NOTIFY_CQ, "N_NOTIFY_CQ"},
                                  {IBV_DEVICE_MEM_WINDOW, "MEM_WINDOW"},
                                  {IBV_DEVICE_UD_IP_CSUM, "UD_IP_CSUM"},
                                  {IBV_DEVICE_XRC, "XRC"},
                                  {IBV_DEVICE_MEM_MGT_EXTENSIONS, "MEM_MGT_EXTENSIONS"},
                                  {IBV_DEVICE_MEM_WINDOW_TYPE_2A, "MEM_WINDOW_TYPE_2A"},
                                  {IBV_DEVICE_MEM_WINDOW_TYPE_2B, "MEM_WINDOW_TYPE_2B"},
                                  {IBV_DEVICE_RC_IP_CSUM, "RC_IP_CSUM"},
                                  {IBV_DEVICE_RAW_IP_CSUM, "RAW_IP_CSUM"},
                                  {IBV_DEVICE_MANAGED_FLOW_STEERING, "MANAGED_FLOW_STEERING"}};
constexpr Flag kCapabilitiesEx[] = {{IBV_DEVICE_RAW_SCATTER_FCS, "RAW_SCATTER_FCS"},
                                    {IBV_DEVICE_PCI_WRITE_END_PADDING, "PCI_WRITE_END_PADDING"}};
constexpr Flag kOdpGeneral[] = {{IBV_ODP_SUPPORT, "ODP_SUPPORT"},
                                {IBV_ODP_SUPPORT_IMPLICIT, "ODP_SUPPORT_IMPLICIT"}};
constexpr Flag kOdpTransport[] = {
    {IBV_ODP_SUPPORT_SEND, "SUPPORT_SEND"},     {IBV_ODP_SUPPORT_RECV, "SUPPORT_RECV"},
    {IBV_ODP_SUPPORT_WRITE, "SUPPORT_WRITE"},   {IBV_ODP_SUPPORT_READ, "SUPPORT_READ"},
    {IBV_ODP_SUPPORT_ATOMIC, "SUPPORT_ATOMIC"}, {IBV_ODP_SUPPORT_SRQ_RECV, "SUPPORT_SRQ"}};
constexpr Flag kRawPackets[] = {{IBV_RAW_PACKET_CAP_CVLAN_STRIPPING, "C-VLAN stripping offload"},
                                {IBV_RAW_PACKET_CAP_SCATTER_FCS, "Scatter FCS offload"},
                                {IBV_RAW_PACKET_CAP_IP_CSUM, "IP csum offload"},
                                {IBV_RAW_PACKET_CAP_DELAY_DROP, "Delay drop"}};
constexpr Flag kQpTypes[] = {{1U << IBV_QPT_RAW_PACKET, "SUPPORT_RAW_PACKET"},
                             {1U << IBV_QPT_UD, "SUPPORT_UD"}};
constexpr Flag kTagMatching[] = {{IBV_TM_CAP_RC, "IBV_TM_CAP_RC"}};

Json print_qp_types(const Sheet& sheet, uint32_t types) {
  sheet.output().text("\t\tsupported_qp:\n");
  return sheet.flags(types, kQpTypes);
}

void print_odp(const Sheet& sheet, const ibv_device_attr_ex& device, Json& json) {
  sheet.output().text("\tgeneral_odp_caps:\n");
  json["general_odp_caps"] = sheet.flags(device.odp_caps.general_caps, kOdpGeneral);
  const auto& each = device.odp_caps.per_transport_caps;
  const std::pair<const char*, uint32_t> transports[] = {{"rc_odp_caps", each.rc_odp_caps},
                                                         {"uc_odp_caps", each.uc_odp_caps},
                                                         {"ud_odp_caps", each.ud_odp_caps},
                                                         {"xrc_odp_caps", device.xrc_odp_caps}};
  for (const auto& [name, capabilities] : transports) {
    sheet.output().text("\t%s:\n", name);
    if (capabilities == 0) sheet.output().text("\t\t\t\t\tNO SUPPORT\n");
    json[name] = sheet.flags(capabilities, kOdpTransport);
  }
}

void print_clocks(const Sheet& sheet, const ibv_device_attr_ex& device, Json& json) {
  json["completion_timestamp_mask"] = device.completion_timestamp_mask;
  json["hca_core_clock_khz"] = device.hca_core_clock;
  if (device.completion_timestamp_mask != 0) {
    // ibv_devinfo prints three tabs here.
    sheet.output().text("\tcompletion timestamp_mask:\t\t\t0x%016llx\n",
                        static_cast<unsigned long long>(device.completion_timestamp_mask));
  } else {
    sheet.output().text("\tcompletion_timestamp_mask not supported\n");
  }
  if (device.hca_core_clock != 0) {
    sheet.row(1, "hca_core_clock", kDeviceColumn, verbena::format("{}kHZ", device.hca_core_clock));
  } else {
    sheet.output().text("\tcore clock not supported\n");
  }
}

void print_tso(const Sheet& sheet, const ibv_tso_caps& tso, Json& json) {
  sheet.output().text("\ttso_caps:\n");
  Rows(sheet, json, 2, kTsoColumn).number("max_tso", tso.max_tso);
  if (tso.max_tso != 0) json["supported_qp"] = print_qp_types(sheet, tso.supported_qpts);
}

void print_rss(const Sheet& sheet, const ibv_rss_caps& rss, Json& json) {
  sheet.output().text("\trss_caps:\n");
  const Rows rows(sheet, json, 2, kRssColumn);
  rows.number("max_rwq_indirection_tables", rss.max_rwq_indirection_tables);
  rows.number("max_rwq_indirection_table_size", rss.max_rwq_indirection_table_size);
  rows.hexadecimal("rx_hash_function", rss.rx_hash_function);
  rows.row("rx_hash_fields_mask", verbena::format("0x{:X}", rss.rx_hash_fields_mask),
           rss.rx_hash_fields_mask);
  if (rss.supported_qpts != 0) json["supported_qp"] = print_qp_types(sheet, rss.supported_qpts);
}

void print_pacing(const Sheet& sheet, const ibv_packet_pacing_caps& pacing, Json& json) {
  sheet.output().text("\tpacket_pacing_caps:\n");
  sheet.row(2, "qp_rate_limit_min", kDeviceColumn, verbena::format("{}kbps", pacing.qp_rate_limit_min));
  sheet.row(2, "qp_rate_limit_max", kDeviceColumn, verbena::format("{}kbps", pacing.qp_rate_limit_max));
  json = {{"qp_rate_limit_min_kbps", pacing.qp_rate_limit_min},
          {"qp_rate_limit_max_kbps", pacing.qp_rate_limit_max}};
  if (pacing.qp_rate_limit_max != 0) json["supported_qp"] = print_qp_types(sheet, pacing.supported_qpts);
}

void print_tag_matching(const Sheet& sheet, const ibv_tm_caps& tags, Json& json) {
  json = {{"max_num_tags", tags.max_num_tags}};
  if (tags.max_num_tags == 0) {
    sheet.output().text("\ttag matching not supported\n");
    return;
  }
  const Rows rows(sheet, json, 1, kDeviceColumn);
  rows.number("max_rndv_hdr_size", tags.max_rndv_hdr_size);
  rows.number("max_num_tags", tags.max_num_tags);
  rows.number("max_ops", tags.max_ops);
  rows.number("max_sge", tags.max_sge);
  sheet.output().text("\tflags:\n");
  json["flags"] = sheet.flags(tags.flags, kTagMatching, false);
}

void print_moderation(const Sheet& sheet, const ibv_cq_moderation_caps& moderation, Json& json) {
  json = {{"max_cq_count", moderation.max_cq_count}, {"max_cq_period_us", moderation.max_cq_period}};
  if (moderation.max_cq_count == 0 || moderation.max_cq_period == 0) return;
  sheet.output().text("\n\tcq moderation caps:\n");
  sheet.output().text("\t\tmax_cq_count:\t%u\n", static_cast<unsigned>(moderation.max_cq_count));
  sheet.output().text("\t\tmax_cq_period:\t%u us\n\n", static_cast<unsigned>(moderation.max_cq_period));
}

}  // namespace

Json print_capability_flags(const Sheet& sheet, uint32_t flags) {
  return sheet.flags(flags, kCapabilities);
}

void print_extended(const Sheet& sheet, const ibv_device_attr_ex& device, Json& json) {
  print_odp(sheet, device, json);
  print_clocks(sheet, device, json);
  if (device.raw_packet_caps != 0) sheet.output().text("\traw packet caps:\n");
  json["raw_packet_caps"] = sheet.flags(device.raw_packet_caps, kRawPackets, false);
  sheet.row(1, "device_cap_flags_ex", kDeviceColumn, verbena::format("0x{:X}", device.device_cap_flags_ex));
  // The lower half repeats device_cap_flags.
  json["device_cap_flags_ex"] = sheet.flags(device.device_cap_flags_ex & ~0xffffffffULL, kCapabilitiesEx);
  print_tso(sheet, device.tso_caps, json["tso_caps"]);
  print_rss(sheet, device.rss_caps, json["rss_caps"]);
  Rows(sheet, json, 1, kDeviceColumn).number("max_wq_type_rq", device.max_wq_type_rq);
  print_pacing(sheet, device.packet_pacing_caps, json["packet_pacing_caps"]);
  print_tag_matching(sheet, device.tm_caps, json["tag_matching_caps"]);
  print_moderation(sheet, device.cq_mod_caps, json["cq_moderation_caps"]);
  json["max_dm_size"] = device.max_dm_size;
  if (device.max_dm_size != 0) {
    sheet.output().text("\tmaximum available device memory:\t%lluBytes\n\n",
                        static_cast<unsigned long long>(device.max_dm_size));
  }
}

}  // namespace verbena::rdma_core
