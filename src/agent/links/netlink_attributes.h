// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include "base/result.h"

namespace verbena::agent {

// Buffer size for netlink dumps, whose messages come in pieces of up to 32 KiB (netlink(7)).
inline constexpr size_t kNetlinkBufferBytes = 32 << 10;

struct NetlinkCloser {
  void operator()(mnl_socket* socket) const { mnl_socket_close(socket); }
};
using NetlinkSocket = std::unique_ptr<mnl_socket, NetlinkCloser>;
// Opens an rtnetlink socket that receives the events of these groups (RTMGRP_*).
inline Result<NetlinkSocket> open_route_socket(unsigned groups) {
  NetlinkSocket socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC));
  if (!socket || mnl_socket_bind(socket.get(), groups, MNL_SOCKET_AUTOPID) < 0) return fail(errno);
  return socket;
}

// The attributes of a netlink message, by type. mnl_attr_parse() fills the table by calling collect().
template <size_t Size>
struct NetlinkAttributes {
  const nlattr* by_type[Size] = {};

  static int collect(const nlattr* attribute, void* self) {
    const uint16_t type = mnl_attr_get_type(attribute);
    if (type < Size) static_cast<NetlinkAttributes*>(self)->by_type[type] = attribute;
    return MNL_CB_OK;
  }
  // Returns the attribute of this type, or nullptr if the message has none. REQUIRES: type < Size
  const nlattr* operator[](size_t type) const { return by_type[type]; }
  // Returns the attribute's value, or 0 if the attribute is missing or is no 32-bit number. REQUIRES: type <
  // Size
  uint32_t number(size_t type) const {
    return by_type[type] != nullptr && mnl_attr_validate(by_type[type], MNL_TYPE_U32) >= 0
               ? mnl_attr_get_u32(by_type[type])
               : 0;
  }
};

}  // namespace verbena::agent
