// SPDX-License-Identifier: Apache-2.0
// Queries of a device, a port, its P_Key table and its GID table.
#include "libraries/libibverbs/abi.h"

#undef ibv_query_port

namespace verbena::verbs {
namespace {

struct SpeedUnit {
  uint8_t value;        // as in ibv_port_attr
  uint16_t multiplier;  // lanes, or units of 100 Mb/s
};

constexpr SpeedUnit kWidths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
// SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR (IBTA vol 1, 14.2.5.6 PortInfo)
constexpr SpeedUnit kSpeeds[] = {{1, 25},   {2, 50},   {4, 100},  {8, 100},
                                 {16, 140}, {32, 250}, {64, 500}, {128, 1000}};

template <size_t kCount>
uint64_t look_up(const SpeedUnit (&table)[kCount], uint8_t value) {
  for (const SpeedUnit& unit : table) {
    if (unit.value == value) return unit.multiplier;
  }
  return 0;
}

}  // namespace

int query_device(provider::Context& context, ibv_device_attr_ex* attr, size_t attr_size) {
  if (attr_size < sizeof attr->orig_attr)
    return because(EINVAL, "attr_size {} is less than {}", attr_size, sizeof attr->orig_attr);
  ibv_device_attr_ex full{};
  const int code = context.query_device(&full, sizeof full);
  if (code == 0) copy_out(attr, attr_size, full);
  return code;
}

int query_port(provider::Context& context, uint8_t port, void* attr, size_t attr_size) {
  ibv_port_attr full{};
  const int code = context.query_port(port, &full);
  if (code == 0) copy_out(attr, attr_size, full);
  return code;
}

}  // namespace verbena::verbs

using namespace verbena::verbs;

VERBENA_ABI int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return call(context, [&](auto& provider) {
    // orig_attr is the first member, so this size limits the result to it.
    return query_device(provider, reinterpret_cast<ibv_device_attr_ex*>(attr), sizeof *attr);
  });
}

// The size of ibv_port_attr when this symbol version was created. The function must not write beyond it.
static constexpr size_t kOldPortAttrSize = 48;
static_assert(offsetof(ibv_port_attr, port_cap_flags2) == kOldPortAttrSize);

VERBENA_ABI int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return call(context, [&](auto& provider) { return query_port(provider, port, attr, kOldPortAttrSize); });
}

VERBENA_ABI int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  return call(context, [&](auto& provider) {
    if (port > UINT8_MAX) return because(EINVAL, "there is no port {}", port);
    ibv_port_attr attr{};
    if (const int code = provider.query_port(static_cast<uint8_t>(port), &attr)) return code;
    *speed = look_up(kWidths, attr.active_width) * look_up(kSpeeds, attr.active_speed);
    return 0;
  });
}

VERBENA_FORWARD(int, ibv_query_pkey, (ibv_context * context, uint8_t port, int index, __be16* pkey),
                call_minus_one, context, query_pkey(port, index, pkey))

VERBENA_ABI int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  int found = -1;
  without_exceptions([&] {
    __be16 entry = 0;
    for (int index = 0; ibv_query_pkey(context, port, index, &entry) == 0; ++index) {
      if (entry == pkey) found = index;
      if (found >= 0) break;
    }
    return 0;
  });
  return found;
}

// ---- the GID table, for four generations of calls

VERBENA_FORWARD(int, ibv_query_gid, (ibv_context * context, uint8_t port, int index, ibv_gid* gid),
                call_minus_one, context, query_gid(port, index, gid))

VERBENA_ABI int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, GidSysfsType* type) {
  const int failed = call(context, [&](auto& provider) {
    ibv_gid_entry entry{};
    const int code = provider.query_gid_entry(port, index, &entry);
    if (code != 0 && code != ENODATA) return code;
    const bool is_v2 = code == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    *type = is_v2 ? GidSysfsType::kRoceV2 : GidSysfsType::kIbOrRoceV1;
    return 0;
  });
  return failed == 0 ? 0 : -1;
}

// Like the kernel, refuses a struct shorter than its first version, and zeros the extra bytes of a longer
// one.
VERBENA_ABI int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                                  uint32_t flags, size_t entry_size) {
  return call(context, [&](auto& provider) {
    if (flags != 0) return because(EINVAL, "flags {:#x} are not 0", flags);
    if (port > UINT8_MAX) return because(EINVAL, "there is no port {}", port);
    if (entry_size < sizeof *entry)
      return because(EINVAL, "entry_size {} is less than {}", entry_size, sizeof *entry);
    ibv_gid_entry found{};
    if (const int code = provider.query_gid_entry(static_cast<uint8_t>(port), index, &found)) return code;
    copy_out(entry, entry_size, found);
    return 0;
  });
}

VERBENA_ABI ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                                         uint32_t flags, size_t entry_size) {
  size_t count = 0;
  const int code = call(context, [&](auto& provider) {
    if (flags != 0) return because(EINVAL, "flags {:#x} are not 0", flags);
    if (entry_size == 0 || max_entries == 0) return because(EINVAL, "entry_size or max_entries is 0");
    const auto table = provider.gid_table();
    if (table.size() > max_entries)
      return because(EINVAL, "max_entries {} is less than the {} GIDs there are", max_entries, table.size());
    auto* to = reinterpret_cast<std::byte*>(entries);
    for (const ibv_gid_entry& entry : table) {
      copy_out(to, entry_size, entry);
      to += entry_size;
    }
    count = table.size();
    return 0;
  });
  return code == 0 ? static_cast<ssize_t>(count) : -code;
}

VERBENA_ABI int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr,
                                            uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t* vid) {
  return -call(context, [&](auto& provider) { return provider.resolve_eth_l2_from_gid(attr, eth_mac, vid); });
}
