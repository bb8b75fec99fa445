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

class PortPrinter {
 public:
  PortPrinter(const Sheet& sheet, Json& json) : sheet_(sheet), json_(json) {}

  // Prints a value's name, with its number in parentheses.
  void named(const char* name, const char* value, int number, const char* unit = "") {
    row(name, verbena::format("{}{} ({})", value, unit, number), verbena::format("{}{}", value, unit));
  }
  void number(const char* name, long long value) { row(name, verbena::format("{}", value), value); }
  void hexadecimal(const char* name, uint32_t value, int digits) {
    row(name, verbena::format("0x{:0{}x}", value, digits), value);
  }
  void row(const char* name, const std::string& value, const Json& json) {
    sheet_.row(3, name, kPortColumn, value);
    json_[name] = json;
  }

 private:
  const Sheet& sheet_;
  Json& json_;
};

void print_more(PortPrinter& print, const ibv_port_attr& port, int transport) {
  print.hexadecimal("max_msg_sz", port.max_msg_sz, 1);
  print.hexadecimal("port_cap_flags", port.port_cap_flags, 8);
  print.hexadecimal("port_cap_flags2", port.port_cap_flags2, 4);
  print.named("max_vl_num", virtual_lanes_name(port.max_vl_num), port.max_vl_num);
  print.hexadecimal("bad_pkey_cntr", port.bad_pkey_cntr, 1);
  print.hexadecimal("qkey_viol_cntr", port.qkey_viol_cntr, 1);
  print.number("sm_sl", port.sm_sl);
  print.number("pkey_tbl_len", port.pkey_tbl_len);
  print.number("gid_tbl_len", port.gid_tbl_len);
  print.number("subnet_timeout", port.subnet_timeout);
  print.number("init_type_reply", port.init_type_reply);
  print.named("active_width", width_name(port.active_width), port.active_width, "X");
  print.named("active_speed", speed_name(port.active_speed), port.active_speed);
  if (transport == IBV_TRANSPORT_IB) {
    print.named("phys_state", physical_state_name(port.phys_state), port.phys_state);
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
  PortPrinter print(sheet, json);
  print.named("state", port_state_name(attributes.state), attributes.state);
  print.named("max_mtu", mtu_name(attributes.max_mtu), attributes.max_mtu);
  print.named("active_mtu", mtu_name(attributes.active_mtu), attributes.active_mtu);
  print.number("sm_lid", attributes.sm_lid);
  print.number("port_lid", attributes.lid);
  print.hexadecimal("port_lmc", attributes.lmc, 2);
  const char* layer = link_layer_name(attributes.link_layer);
  print.row("link_layer", layer, layer);
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
