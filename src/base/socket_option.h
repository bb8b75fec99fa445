// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

namespace verbena {

// False: the kernel has refused, with errno.
template <class Value>
bool set_option(int socket, int level, int name, const Value& value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

// How the kernel finds out the path MTU, and so whether routers and we may cut packets: IP_PMTUDISC_DO (no),
// _DONT (yes) or _PROBE (no, and it does not keep to what it knows). IPv6 has the same values.
inline bool set_path_mtu_discovery(int socket, bool ipv6, int how) {
  static_assert(IP_PMTUDISC_DO == IPV6_PMTUDISC_DO && IP_PMTUDISC_DONT == IPV6_PMTUDISC_DONT &&
                IP_PMTUDISC_PROBE == IPV6_PMTUDISC_PROBE);
  return ipv6 ? set_option(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, how)
              : set_option(socket, IPPROTO_IP, IP_MTU_DISCOVER, how);
}

// Room for what nobody has read, or what is on its way: past the system's limit (net.core.rmem_max, wmem_max)
// where the privilege allows it, else up to there.
inline void set_receive_buffer(int socket, int bytes) {
  if (!set_option(socket, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
    set_option(socket, SOL_SOCKET, SO_RCVBUF, bytes);
}
inline void set_send_buffer(int socket, int bytes) {
  if (!set_option(socket, SOL_SOCKET, SO_SNDBUFFORCE, bytes))
    set_option(socket, SOL_SOCKET, SO_SNDBUF, bytes);
}

}  // namespace verbena
