// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>

#include <net/if.h>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/devinfo/device.h"
#include "commands/rdma_core/verbs/devinfo/sheet.h"

namespace verbena::rdma_core {
namespace {

using Json = Sheet::Json;

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

// Returns null, after a message, if a query fails.
Json print_gids(const Sheet& sheet, ibv_context* context, uint8_t port, const ibv_port_attr& attributes) {
  Json listed = Json::array();
  for (int i = 0; i < attributes.gid_tbl_len; ++i) {
    ibv_gid gid = {};
    if (ibv_query_gid(context, port, i, &gid) != 0) {
      complain_of(errno, verbena::format("Failed to query gid to port {}, index {}", port, i));
      return nullptr;
    }
    ibv_gid_entry entry = {};
    if (is_empty(gid) || ibv_query_gid_ex(context, port, static_cast<uint32_t>(i), &entry, 0) != 0) continue;
    listed.push_back(print_gid(sheet, entry, attributes.link_layer == IBV_LINK_LAYER_ETHERNET));
  }
  return listed;
}

}  // namespace

Json print_port(const Sheet& sheet, ibv_context* context, uint8_t port, bool verbose) {
  ibv_port_attr attributes = {};
  if (const int error = ibv_query_port(context, port, &attributes); error != 0) {
    complain_of(error, verbena::format("Failed to query port {} props", port));
    return nullptr;
  }
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
    Json gids = print_gids(sheet, context, port, attributes);
    if (gids.is_null()) return nullptr;
    json["gids"] = std::move(gids);
  }
  sheet.output().text("\n");
  return json;
}

}  // namespace verbena::rdma_core
