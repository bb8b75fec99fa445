// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

namespace verbena {

// setsockopt(2) with a typed value. False on error, with errno.
template <class Value>
bool set_option(int socket, int level, int name, const Value& value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

// Sets how the kernel discovers the path MTU, and so whether it and routers may fragment packets:
// IP_PMTUDISC_DO (no), _DONT (yes) or _PROBE (no, and it ignores the path MTU that it knows). IPv6 has the
// same values.
inline bool set_path_mtu_discovery(int socket, bool ipv6, int how) {
  static_assert(IP_PMTUDISC_DO == IPV6_PMTUDISC_DO && IP_PMTUDISC_DONT == IPV6_PMTUDISC_DONT &&
                IP_PMTUDISC_PROBE == IPV6_PMTUDISC_PROBE);
  return ipv6 ? set_option(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, how)
              : set_option(socket, IPPROTO_IP, IP_MTU_DISCOVER, how);
}

// Sets the receive or send buffer size: beyond net.core.rmem_max and wmem_max with CAP_NET_ADMIN, else up to
// these limits.
inline void set_receive_buffer(int socket, int bytes) {
  if (!set_option(socket, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
    set_option(socket, SOL_SOCKET, SO_RCVBUF, bytes);
}
inline void set_send_buffer(int socket, int bytes) {
  if (!set_option(socket, SOL_SOCKET, SO_SNDBUFFORCE, bytes))
    set_option(socket, SOL_SOCKET, SO_SNDBUF, bytes);
}

}  // namespace verbena
