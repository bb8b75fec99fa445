// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/devinfo/device.h"

#include <fstream>

#include "base/format.h"
#include "commands/rdma_core/verbs/devinfo/sheet.h"

namespace verbena::rdma_core {
namespace {

// A numeric attribute, and whether to print it.
struct Row {
  const char* name;
  long long (*value)(const ibv_device_attr&);
  bool (*shown)(const ibv_device_attr&) = [](const ibv_device_attr&) { return true; };
};

#define VERBENA_ROW(field)                                                          \
  {                                                                                 \
#field, [](const ibv_device_attr& device) -> long long { return device.field; } \
  }

constexpr Row kFirst[] = {VERBENA_ROW(max_qp), VERBENA_ROW(max_qp_wr)};
constexpr Row kBeforeAtomics[] = {VERBENA_ROW(max_sge),
                                  VERBENA_ROW(max_sge_rd),
                                  VERBENA_ROW(max_cq),
                                  VERBENA_ROW(max_cqe),
                                  VERBENA_ROW(max_mr),
                                  VERBENA_ROW(max_pd),
                                  VERBENA_ROW(max_qp_rd_atom),
                                  VERBENA_ROW(max_ee_rd_atom),
                                  VERBENA_ROW(max_res_rd_atom),
                                  VERBENA_ROW(max_qp_init_rd_atom),
                                  VERBENA_ROW(max_ee_init_rd_atom)};
constexpr bool (*kIfFmr)(const ibv_device_attr&) = [](const ibv_device_attr& device) {
  return device.max_fmr != 0;
};
constexpr bool (*kIfSrq)(const ibv_device_attr&) = [](const ibv_device_attr& device) {
  return device.max_srq != 0;
};
constexpr Row kBehindAtomics[] = {
    VERBENA_ROW(max_ee),
    VERBENA_ROW(max_rdd),
    VERBENA_ROW(max_mw),
    VERBENA_ROW(max_raw_ipv6_qp),
    VERBENA_ROW(max_raw_ethy_qp),
    VERBENA_ROW(max_mcast_grp),
    VERBENA_ROW(max_mcast_qp_attach),
    VERBENA_ROW(max_total_mcast_qp_attach),
    VERBENA_ROW(max_ah),
    VERBENA_ROW(max_fmr),
    {"max_map_per_fmr", [](const ibv_device_attr& device) -> long long { return device.max_map_per_fmr; },
     kIfFmr},
    VERBENA_ROW(max_srq),
    {"max_srq_wr", [](const ibv_device_attr& device) -> long long { return device.max_srq_wr; }, kIfSrq},
    {"max_srq_sge", [](const ibv_device_attr& device) -> long long { return device.max_srq_sge; }, kIfSrq},
    VERBENA_ROW(max_pkeys),
    VERBENA_ROW(local_ca_ack_delay)};
#undef VERBENA_ROW

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

void print_numbers(const Rows& rows, std::span<const Row> table, const ibv_device_attr& device) {
  for (const Row& each : table) {
    if (each.shown(device)) rows.number(each.name, each.value(device));
  }
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

}  // namespace

Sheet::Json print_device(const Sheet& sheet, ibv_context* context, const ibv_device_attr_ex& extended,
                         bool verbose) {
  const ibv_device_attr& attributes = extended.orig_attr;
  const char* name = ibv_get_device_name(context->device);
  Sheet::Json json = {{"name", name}};
  sheet.row(0, "hca_id", 0, name);
  const Rows print(sheet, json, 1, kDeviceColumn);
  print_identity(print, *context->device, attributes);
  if (!verbose) return json;

  print.hexadecimal("max_mr_size", attributes.max_mr_size);
  print.hexadecimal("page_size_cap", attributes.page_size_cap);
  print_numbers(print, kFirst, attributes);
  print.hexadecimal("device_cap_flags", attributes.device_cap_flags, 8);
  json["device_cap_flags"] = print_capability_flags(sheet, attributes.device_cap_flags);
  print_numbers(print, kBeforeAtomics, attributes);
  print.named("atomic_cap", kAtomics, attributes.atomic_cap, "invalid atomic capability");
  print_numbers(print, kBehindAtomics, attributes);
  print_extended(sheet, extended, json);
  print.number("num_comp_vectors", context->num_comp_vectors);
  return json;
}

}  // namespace verbena::rdma_core
