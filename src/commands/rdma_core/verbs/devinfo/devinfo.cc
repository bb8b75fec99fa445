// SPDX-License-Identifier: Apache-2.0
// ibv_devinfo: prints attributes of RDMA devices and their ports.
#include <algorithm>
#include <cerrno>
#include <fstream>

#include <net/if.h>

#include "base/format.h"
#include "commands/rdma_core/common/handles.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/verbs/devinfo/sheet.h"

namespace verbena::rdma_core {
namespace {

using Json = Sheet::Json;

constexpr Name kTransports[] = {{IBV_TRANSPORT_IB, "InfiniBand"},
                                {IBV_TRANSPORT_IWARP, "iWARP"},
                                {IBV_TRANSPORT_USNIC, "usNIC"},
                                {IBV_TRANSPORT_USNIC_UDP, "usNIC UDP"},
                                {IBV_TRANSPORT_UNSPECIFIED, "unspecified"}};
constexpr Name kAtomics[] = {
    {IBV_ATOMIC_NONE, "ATOMIC_NONE"}, {IBV_ATOMIC_HCA, "ATOMIC_HCA"}, {IBV_ATOMIC_GLOB, "ATOMIC_GLOB"}};

// Returns the board's name; empty if the driver publishes none.
std::string board_of(const ibv_device& device) {
  std::ifstream file(std::string(device.ibdev_path) + "/board_id");
  std::string board;
  std::getline(file, board);
  return board;
}

void print_identity(const Rows& print, ibv_device& device, const ibv_device_attr& attributes) {
  print.named("transport", kTransports, device.transport_type, "invalid transport");
  const std::string firmware(attributes.fw_ver, strnlen(attributes.fw_ver, sizeof attributes.fw_ver));
  if (!firmware.empty()) print.row("fw_ver", firmware);
  print.row("node_guid", guid_text(attributes.node_guid));
  print.row("sys_image_guid", guid_text(attributes.sys_image_guid));
  print.hexadecimal("vendor_id", attributes.vendor_id, 4);
  print.number("vendor_part_id", static_cast<int>(attributes.vendor_part_id));
  print.row("hw_ver", verbena::format("0x{:X}", attributes.hw_ver), attributes.hw_ver);
  const std::string board = board_of(device);
  if (!board.empty()) print.row("board_id", board);
  print.number("phys_port_cnt", attributes.phys_port_cnt);
}

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

// Prints the attributes that ibv_query_device_ex() adds to ibv_query_device(), and adds them to the JSON
// object. Among them are on-demand paging, clocks, offloads, pacing and tag matching.
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

// Prints a device's attributes without its ports, the limits only if `verbose`. Returns the same as JSON.
Json print_device(const Sheet& sheet, ibv_context* context, const ibv_device_attr_ex& extended,
                  bool verbose) {
  const ibv_device_attr& attributes = extended.orig_attr;
  const char* name = ibv_get_device_name(context->device);
  Json json = {{"name", name}};
  sheet.row(0, "hca_id", 0, name);
  const Rows print(sheet, json, 1, kDeviceColumn);
  print_identity(print, *context->device, attributes);
  if (!verbose) return json;

  print.hexadecimal("max_mr_size", attributes.max_mr_size);
  print.hexadecimal("page_size_cap", attributes.page_size_cap);
  print.number("max_qp", attributes.max_qp);
  print.number("max_qp_wr", attributes.max_qp_wr);
  print.hexadecimal("device_cap_flags", attributes.device_cap_flags, 8);
  json["device_cap_flags"] = sheet.flags(attributes.device_cap_flags, kCapabilities);
  print.number("max_sge", attributes.max_sge);
  print.number("max_sge_rd", attributes.max_sge_rd);
  print.number("max_cq", attributes.max_cq);
  print.number("max_cqe", attributes.max_cqe);
  print.number("max_mr", attributes.max_mr);
  print.number("max_pd", attributes.max_pd);
  print.number("max_qp_rd_atom", attributes.max_qp_rd_atom);
  print.number("max_ee_rd_atom", attributes.max_ee_rd_atom);
  print.number("max_res_rd_atom", attributes.max_res_rd_atom);
  print.number("max_qp_init_rd_atom", attributes.max_qp_init_rd_atom);
  print.number("max_ee_init_rd_atom", attributes.max_ee_init_rd_atom);
  print.named("atomic_cap", kAtomics, attributes.atomic_cap, "invalid atomic capability");
  print.number("max_ee", attributes.max_ee);
  print.number("max_rdd", attributes.max_rdd);
  print.number("max_mw", attributes.max_mw);
  print.number("max_raw_ipv6_qp", attributes.max_raw_ipv6_qp);
  print.number("max_raw_ethy_qp", attributes.max_raw_ethy_qp);
  print.number("max_mcast_grp", attributes.max_mcast_grp);
  print.number("max_mcast_qp_attach", attributes.max_mcast_qp_attach);
  print.number("max_total_mcast_qp_attach", attributes.max_total_mcast_qp_attach);
  print.number("max_ah", attributes.max_ah);
  print.number("max_fmr", attributes.max_fmr);
  if (attributes.max_fmr != 0) print.number("max_map_per_fmr", attributes.max_map_per_fmr);
  print.number("max_srq", attributes.max_srq);
  if (attributes.max_srq != 0) {
    print.number("max_srq_wr", attributes.max_srq_wr);
    print.number("max_srq_sge", attributes.max_srq_sge);
  }
  print.number("max_pkeys", attributes.max_pkeys);
  print.number("local_ca_ack_delay", attributes.local_ca_ack_delay);
  print_extended(sheet, extended, json);
  print.number("num_comp_vectors", context->num_comp_vectors);
  return json;
}

constexpr int kPortColumn = 48;

constexpr Name kPortStates[] = {{IBV_PORT_DOWN, "PORT_DOWN"},
                                {IBV_PORT_INIT, "PORT_INIT"},
                                {IBV_PORT_ARMED, "PORT_ARMED"},
                                {IBV_PORT_ACTIVE, "PORT_ACTIVE"}};
// Spelled as in ibv_devinfo(1).
constexpr Name kPhysicalStates[] = {{1, "SLEEP"},    {2, "POLLING"},
                                    {3, "DISABLED"}, {4, "PORT_CONFIGURATION TRAINNING"},
                                    {5, "LINK_UP"},  {6, "LINK_ERROR_RECOVERY"},
                                    {7, "PHY TEST"}};
constexpr Name kMtus[] = {{IBV_MTU_256, "256"},
                          {IBV_MTU_512, "512"},
                          {IBV_MTU_1024, "1024"},
                          {IBV_MTU_2048, "2048"},
                          {IBV_MTU_4096, "4096"}};
constexpr Name kWidths[] = {{1, "1"}, {2, "4"}, {4, "8"}, {8, "12"}, {16, "2"}};
constexpr Name kSpeeds[] = {{1, "2.5 Gbps"},   {2, "5.0 Gbps"},   {4, "10.0 Gbps"},  {8, "10.0 Gbps"},
                            {16, "14.0 Gbps"}, {32, "25.0 Gbps"}, {64, "50.0 Gbps"}, {128, "100.0 Gbps"}};
constexpr Name kVirtualLanes[] = {{1, "1"}, {2, "2"}, {3, "4"}, {4, "8"}, {5, "15"}};
constexpr Name kLinkLayers[] = {{IBV_LINK_LAYER_UNSPECIFIED, "Unspecified"},
                                {IBV_LINK_LAYER_INFINIBAND, "InfiniBand"},
                                {IBV_LINK_LAYER_ETHERNET, "Ethernet"}};

void print_more(const Rows& print, const ibv_port_attr& port, int transport) {
  print.hexadecimal("max_msg_sz", port.max_msg_sz);
  print.hexadecimal("port_cap_flags", port.port_cap_flags, 8);
  print.hexadecimal("port_cap_flags2", port.port_cap_flags2, 4);
  print.named("max_vl_num", kVirtualLanes, port.max_vl_num, "invalid value");
  print.hexadecimal("bad_pkey_cntr", port.bad_pkey_cntr);
  print.hexadecimal("qkey_viol_cntr", port.qkey_viol_cntr);
  print.number("sm_sl", port.sm_sl);
  print.number("pkey_tbl_len", port.pkey_tbl_len);
  print.number("gid_tbl_len", port.gid_tbl_len);
  print.number("subnet_timeout", port.subnet_timeout);
  print.number("init_type_reply", port.init_type_reply);
  print.named("active_width", kWidths, port.active_width, "invalid width", "X");
  print.named("active_speed", kSpeeds, port.active_speed, "invalid speed");
  if (transport == IBV_TRANSPORT_IB) {
    print.named("phys_state", kPhysicalStates, port.phys_state, "invalid physical state");
  }
}

// Whether a GID entry is unused: its interface identifier is zero.
bool is_empty(const ibv_gid& gid) {
  return std::all_of(gid.raw + 8, gid.raw + 16, [](uint8_t byte) { return byte == 0; });
}

std::string netdev_of(const ibv_gid_entry& entry) {
  char name[IF_NAMESIZE] = {};
  return entry.ndev_ifindex != 0 && if_indextoname(entry.ndev_ifindex, name) ? name : "";
}

Json print_gid(const Sheet& sheet, const ibv_gid_entry& entry, bool ethernet) {
  const bool second = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
  const std::string type = second ? "RoCE v2" : ethernet ? "RoCE v1" : "InfiniBand";
  const std::string text = second ? gid_text(entry.gid) : long_gid_text(entry.gid);
  sheet.row(3, verbena::format("GID[{:3}]", entry.gid_index), kPortColumn,
            text + (ethernet ? ", " + type : ""));
  Json json = {{"index", entry.gid_index}, {"gid", text}, {"type", type}};
  if (const std::string netdev = netdev_of(entry); !netdev.empty()) json["netdev"] = netdev;
  return json;
}

Json print_gids(const Sheet& sheet, ibv_context* context, uint8_t port, const ibv_port_attr& attributes) {
  Json listed = Json::array();
  for (int i = 0; i < attributes.gid_tbl_len; ++i) {
    ibv_gid gid = {};
    if (ibv_query_gid(context, port, i, &gid) != 0) {
      fail_of(errno, verbena::format("Failed to query gid to port {}, index {}", port, i));
    }
    ibv_gid_entry entry = {};
    if (is_empty(gid) || ibv_query_gid_ex(context, port, static_cast<uint32_t>(i), &entry, 0) != 0) continue;
    listed.push_back(print_gid(sheet, entry, attributes.link_layer == IBV_LINK_LAYER_ETHERNET));
  }
  return listed;
}

// Prints a port's attributes, with its GIDs if `verbose`, and returns them as JSON.
Json print_port(const Sheet& sheet, ibv_context* context, uint8_t port, bool verbose) {
  ibv_port_attr attributes = {};
  check(ibv_query_port(context, port, &attributes), verbena::format("Failed to query port {} props", port));
  Json json = {{"port", port}};
  sheet.output().text("\t\tport:\t%u\n", static_cast<unsigned>(port));
  const Rows print(sheet, json, 3, kPortColumn);
  print.named("state", kPortStates, attributes.state, "invalid state");
  print.named("max_mtu", kMtus, attributes.max_mtu, "invalid MTU");
  print.named("active_mtu", kMtus, attributes.active_mtu, "invalid MTU");
  print.number("sm_lid", attributes.sm_lid);
  print.number("port_lid", attributes.lid);
  print.hexadecimal("port_lmc", attributes.lmc, 2);
  const char* layer = name_of(kLinkLayers, attributes.link_layer, "Unknown");
  print.row("link_layer", layer);
  if (verbose) {
    print_more(print, attributes, context->device->transport_type);
    json["gids"] = print_gids(sheet, context, port, attributes);
  }
  sheet.output().text("\n");
  return json;
}

// Exit statuses. Those of several devices are combined bitwise.
enum Status : int {
  kNoDevice = -1,
  kDone = 0,
  kNotOpened = 1,
  kNotQueried = 2,
  kNotClosed = 3,
  kNoSuchPort = 4
};

struct Request {
  std::string device;
  uint8_t port = 0;  // 0: all
  bool list = false;
  bool verbose = false;
  bool json = false;
  bool help = false;
};

void print_devinfo_usage(const char* program) {
  std::printf("Usage: %s             print the ca attributes\n", program);
  std::printf("\n");
  std::printf("Options:\n");
  std::printf("  -d, --ib-dev=<dev>     use IB device <dev> (default first device found)\n");
  std::printf("  -i, --ib-port=<port>   use port <port> of IB device (default all ports)\n");
  std::printf("  -l, --list             print only the IB devices names\n");
  std::printf("  -v, --verbose          print all the attributes of the IB device(s)\n");
  std::printf("      --json             print one JSON object\n");
  std::printf("      --help             print this and exit\n");
}

// Prints a longer text than ibv_devinfo's usage, for --help only.
void print_help(const char* program) {
  print_devinfo_usage(program);
  std::printf("\n");
  std::printf("MTUs and sizes are in bytes.\n");
  std::printf("\n");
  std::printf("Examples:\n");
  std::printf("  %s                    each device and its ports\n", program);
  std::printf("  %s -v -d rxe_eth0     all of one device, with its GIDs\n", program);
  std::printf("  %s -v --json\n", program);
  std::printf("\n");
  std::printf("Exit status: 0 done, 255 no such device or wrong usage, else what failed.\n");
}

int print_names(const DeviceList& devices, Output& output) {
  output.text("%zu HCA%s found:\n", devices.all().size(), devices.all().size() != 1 ? "s" : "");
  auto& listed = output.object()["devices"] = Json::array();
  for (ibv_device* device : devices.all()) {
    output.text("\t%s\n", ibv_get_device_name(device));
    listed.push_back({{"name", ibv_get_device_name(device)}});
  }
  output.text("\n");
  output.finish();
  return kDone;
}

// Throws a Failure after its message if a query fails.
int print_open(const Sheet& sheet, ibv_context* context, const Request& request, Json& listed) {
  ibv_device_attr_ex attributes = {};
  check(ibv_query_device_ex(context, nullptr, &attributes), "Failed to query device props");
  const uint8_t ports = attributes.orig_attr.phys_port_cnt;
  if (request.port > ports) {
    complain("Invalid port requested for device",
             verbena::format("{} has {}", ibv_get_device_name(context->device), ports));
    return kNoSuchPort;
  }
  Json json = print_device(sheet, context, attributes, request.verbose);
  json["ports"] = Json::array();
  for (int port = 1; port <= ports; ++port) {
    if (request.port != 0 && request.port != port) continue;
    json["ports"].push_back(print_port(sheet, context, static_cast<uint8_t>(port), request.verbose));
  }
  listed.push_back(std::move(json));
  return kDone;
}

int print(const Sheet& sheet, ibv_device* device, const Request& request, Json& listed) {
  ibv_context* context = ibv_open_device(device);
  if (context == nullptr) {
    complain_of(errno, "Failed to open device", ibv_get_device_name(device));
    return kNotOpened;
  }
  int status = kNotQueried;
  try {
    status = print_open(sheet, context, request, listed);
  } catch (const Failure&) {
  }
  if (ibv_close_device(context) != 0) {
    complain_of(errno, "Failed to close device");
    return kNotClosed;
  }
  return status;
}

int print_all(const DeviceList& devices, const Request& request, Output& output) {
  const std::string complaint = request.device.empty()
                                    ? "No IB devices found"
                                    : verbena::format("IB device '{}' wasn't found", request.device);
  const ibv_device* found = devices.find(request.device, complaint);
  const Sheet sheet(output);
  auto& listed = output.object()["devices"] = Json::array();
  int status = kDone;
  for (ibv_device* device : devices.all()) {
    const bool wanted = request.device.empty() || device == found;
    if (wanted) status |= print(sheet, device, request, listed);
  }
  if (status == kDone) output.finish();
  return status;
}

}  // namespace

int ibv_devinfo(int argc, char** argv) {
  Request request;
  bool wrong_port = false;
  const std::vector<Option> options = {text('d', "ib-dev", request.device),
                                       {'i', "ib-port", true,
                                        [&](const char* word) {
                                          const Next next =
                                              number('i', "ib-port", request.port, 1).take(word);
                                          wrong_port = next == Next::kWrong;
                                          return next;
                                        }},
                                       flag('l', "list", request.list, Next::kStop),
                                       flag('v', "verbose", request.verbose),
                                       flag(0, "json", request.json),
                                       flag(0, "help", request.help, Next::kStop)};
  const Parsed parsed = parse(argc, argv, options);
  if (request.help) {
    print_help(argv[0]);
    return kDone;
  }
  if (parsed.next == Next::kWrong) {
    print_devinfo_usage(argv[0]);
    return wrong_port ? 1 : kNoDevice;
  }
  Output output(request.json || (request.list && asks_for_json(argc, argv)));
  try {
    const DeviceList devices;
    return request.list ? print_names(devices, output) : print_all(devices, request, output);
  } catch (const Failure&) {
    return kNoDevice;
  }
}

}  // namespace verbena::rdma_core
