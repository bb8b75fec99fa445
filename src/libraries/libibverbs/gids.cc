// SPDX-License-Identifier: Apache-2.0
// The GID table, for four generations of calls.
#include "libraries/libibverbs/gids.h"

#include <algorithm>
#include <cstring>

#include "libraries/libibverbs/abi.h"

using namespace verbena::verbs;

VERBENA_ABI int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  return answer_minus_one([&] {
    auto* provider = owner(context);
    return provider != nullptr ? provider->query_gid(port, index, gid) : EINVAL;
  });
}

VERBENA_ABI int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, GidSysfsType* type) {
  return answer_minus_one([&] {
    auto* provider = owner(context);
    if (provider == nullptr) return EINVAL;
    ibv_gid_entry entry{};
    const int code = provider->query_gid_entry(port, index, &entry);
    if (code != 0 && code != ENODATA) return code;
    const bool is_v2 = code == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    *type = is_v2 ? GidSysfsType::kRoceV2 : GidSysfsType::kIbOrRoceV1;
    return 0;
  });
}

// Like the kernel, refuses a struct shorter than its first version, and zeros the extra bytes of a longer
// one.
VERBENA_ABI int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                                  uint32_t flags, size_t entry_size) {
  return answer_code([&] {
    auto* provider = owner(context);
    if (provider == nullptr) return EINVAL;
    if (flags != 0) return because(EINVAL, "flags {:#x} are not 0", flags);
    if (port > UINT8_MAX) return because(EINVAL, "there is no port {}", port);
    if (entry_size < sizeof *entry)
      return because(EINVAL, "entry_size {} is less than {}", entry_size, sizeof *entry);
    ibv_gid_entry found{};
    if (const int code = provider->query_gid_entry(static_cast<uint8_t>(port), index, &found)) return code;
    std::memset(static_cast<void*>(entry), 0, entry_size);
    *entry = found;
    return 0;
  });
}

VERBENA_ABI ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                                         uint32_t flags, size_t entry_size) {
  size_t count = 0;
  const int code = answer_code([&] {
    auto* provider = owner(context);
    if (provider == nullptr) return EINVAL;
    if (flags != 0) return because(EINVAL, "flags {:#x} are not 0", flags);
    if (entry_size == 0 || max_entries == 0) return because(EINVAL, "entry_size or max_entries is 0");
    const auto table = provider->gid_table();
    if (table.size() > max_entries)
      return because(EINVAL, "max_entries {} is less than the {} GIDs there are", max_entries, table.size());
    auto* to = reinterpret_cast<std::byte*>(entries);
    for (const ibv_gid_entry& entry : table) {
      std::memset(to, 0, entry_size);
      std::memcpy(to, &entry, std::min(entry_size, sizeof entry));
      to += entry_size;
    }
    count = table.size();
    return 0;
  });
  return code == 0 ? static_cast<ssize_t>(count) : -code;
}

VERBENA_ABI int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr,
                                            uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t* vid) {
  return -answer_code([&] {
    auto* provider = owner(context);
    return provider != nullptr ? provider->resolve_eth_l2_from_gid(attr, eth_mac, vid) : EINVAL;
  });
}
