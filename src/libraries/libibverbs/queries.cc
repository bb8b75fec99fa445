// SPDX-License-Identifier: Apache-2.0
// Queries of a device, a port and its P_Key table.
#include <algorithm>
#include <cstring>

#include "libraries/libibverbs/abi.h"
#include "libraries/libibverbs/context_ops.h"

#undef ibv_query_port

namespace verbena::verbs {
namespace {

// Copies as much of the struct as the caller has room for, and zeros what is beyond ours.
template <class Struct>
void copy_out(void* to, size_t size, const Struct& from) {
  std::memset(to, 0, size);
  std::memcpy(to, &from, std::min(size, sizeof from));
}

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
  return answer_code([&] {
    auto* provider = owner(context);
    if (provider == nullptr) return EINVAL;
    // orig_attr is the first member, so this size limits the result to it.
    return query_device(*provider, reinterpret_cast<ibv_device_attr_ex*>(attr), sizeof *attr);
  });
}

// The size of ibv_port_attr when this symbol version was created. The function must not write beyond it.
static constexpr size_t kOldPortAttrSize = 48;
static_assert(offsetof(ibv_port_attr, port_cap_flags2) == kOldPortAttrSize);

VERBENA_ABI int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return answer_code([&] {
    auto* provider = owner(context);
    return provider != nullptr ? query_port(*provider, port, attr, kOldPortAttrSize) : EINVAL;
  });
}

VERBENA_ABI int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  return answer_code([&] {
    auto* provider = owner(context);
    if (provider == nullptr) return EINVAL;
    if (port > UINT8_MAX) return because(EINVAL, "there is no port {}", port);
    ibv_port_attr attr{};
    if (const int code = provider->query_port(static_cast<uint8_t>(port), &attr)) return code;
    *speed = look_up(kWidths, attr.active_width) * look_up(kSpeeds, attr.active_speed);
    return 0;
  });
}

VERBENA_ABI int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  return answer_minus_one([&] {
    auto* provider = owner(context);
    return provider != nullptr ? provider->query_pkey(port, index, pkey) : EINVAL;
  });
}

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
