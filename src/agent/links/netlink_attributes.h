// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <libmnl/libmnl.h>

namespace verbena::agent {

// Netlink messages of a dump come in pieces of up to 32 KiB (netlink(7)).
inline constexpr size_t kNetlinkBufferBytes = 32 << 10;

// The attributes of one netlink message, by type: to be filled by mnl_attr_parse() with collect().
template <size_t Size>
struct NetlinkAttributes {
  const nlattr* by_type[Size] = {};

  static int collect(const nlattr* attribute, void* self) {
    const uint16_t type = mnl_attr_get_type(attribute);
    if (type < Size) static_cast<NetlinkAttributes*>(self)->by_type[type] = attribute;
    return MNL_CB_OK;
  }
  // nullptr: there is none.
  const nlattr* operator[](size_t type) const { return by_type[type]; }
  // 0: there is none, or it is no number.
  uint32_t number(size_t type) const {
    return by_type[type] != nullptr && mnl_attr_validate(by_type[type], MNL_TYPE_U32) >= 0
               ? mnl_attr_get_u32(by_type[type])
               : 0;
  }
};

}  // namespace verbena::agent
