// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace verbena {

// Calls setsockopt(2) with a typed value. Returns false on error, with errno.
template <class Value>
bool set_option(int socket, int level, int name, const Value& value) {
  return ::setsockopt(socket, level, name, &value, sizeof value) == 0;
}

// Calls getsockopt(2) for a typed value. Returns nullopt on error, with errno.
template <class Value>
std::optional<Value> get_option(int socket, int level, int name) {
  Value value{};
  socklen_t bytes = sizeof value;
  if (::getsockopt(socket, level, name, &value, &bytes) != 0) return std::nullopt;
  return value;
}

// Sets how the kernel discovers the path MTU, and so whether it and routers may fragment packets:
// IP_PMTUDISC_DO (no fragments), _DONT (fragments) or _PROBE (no fragments, and the kernel ignores the path
// MTU that it knows). IPv6 has the same values. Returns false on error, with errno.
inline bool set_path_mtu_discovery(int socket, bool ipv6, int how) {
  static_assert(IP_PMTUDISC_DO == IPV6_PMTUDISC_DO && IP_PMTUDISC_DONT == IPV6_PMTUDISC_DONT &&
                IP_PMTUDISC_PROBE == IPV6_PMTUDISC_PROBE);
  return ipv6 ? set_option(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, how)
              : set_option(socket, IPPROTO_IP, IP_MTU_DISCOVER, how);
}

// Set the size of a socket's receive or send buffer. With CAP_NET_ADMIN the size may exceed net.core.rmem_max
// and wmem_max; otherwise the kernel limits the size to these. Errors are ignored.
inline void set_receive_buffer(int socket, int bytes) {
  if (!set_option(socket, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
    set_option(socket, SOL_SOCKET, SO_RCVBUF, bytes);
}
inline void set_send_buffer(int socket, int bytes) {
  if (!set_option(socket, SOL_SOCKET, SO_SNDBUFFORCE, bytes))
    set_option(socket, SOL_SOCKET, SO_SNDBUF, bytes);
}

// The socket option SO_PEERPIDFD (Linux 6.5), which the C library's headers may lack. getsockopt() returns a
// pidfd of the process that listens or connected at the other end of a Unix socket.
#ifdef SO_PEERPIDFD
inline constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
inline constexpr int kPeerPidfd = 77;   // asm-generic/socket.h
#endif

// The socket option SO_PASSRIGHTS (Linux 6.16), which the C library's headers may lack. While it is 0, nobody
// can send descriptors to this end of a Unix socket: sendmsg(2) fails with EPERM. A socket from accept(2) has
// the listener's value of the time of connect(2).
#ifdef SO_PASSRIGHTS
inline constexpr int kPassRights = SO_PASSRIGHTS;
#else
inline constexpr int kPassRights = 83;  // asm-generic/socket.h
#endif

// Lets processes send descriptors to this end of a Unix socket, or not. Without effect before Linux 6.16.
inline void pass_descriptors(int socket, bool on) {
  set_option(socket, SOL_SOCKET, kPassRights, int{on});
}

// Whether sending descriptors to this end of a Unix socket fails. Returns false before Linux 6.16.
inline bool refuses_descriptors(int socket) {
  return get_option<int>(socket, SOL_SOCKET, kPassRights) == 0;
}

inline bool has_name(int unix_socket) {
  sockaddr_un name;
  socklen_t bytes = sizeof name;
  return ::getsockname(unix_socket, reinterpret_cast<sockaddr*>(&name), &bytes) == 0 &&
         bytes > sizeof(sa_family_t);
}

// Binds a nameless Unix socket to a random abstract name, which nobody can guess and take first. Returns
// false on error, with errno; EINVAL if the socket has a name. If a nameless socket has SO_PASSCRED, send(2)
// gives it a name of five digits. To find a free name, the kernel steps past all names that any user has
// taken, which may take seconds. A socket with a name is spared this search.
inline bool bind_to_random_name(int socket) {
  std::array<uint64_t, 2> number;
  // Not the C library's function, which is a cancellation point: the caller may hold locks.
  if (::syscall(SYS_getrandom, number.data(), sizeof number, 0) != sizeof number) return false;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const int letters =
      std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "verbena-%016llx%016llx",
                    static_cast<unsigned long long>(number[0]), static_cast<unsigned long long>(number[1]));
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(letters));
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&name), bytes) == 0;
}

// Returns the cookie of the network namespace in which a socket was made. Unlike the namespace's inode
// number, a cookie is never reused for another namespace. For a socket from accept(2), returns the cookie of
// the connecting process's namespace. So a server learns the network namespace of a client. Returns 0 if the
// kernel cannot tell (before Linux 5.14).
inline uint64_t network_namespace_of(int socket) {
  constexpr int kNetnsCookie = 71;  // SO_NETNS_COOKIE, which older headers lack
  return get_option<uint64_t>(socket, SOL_SOCKET, kNetnsCookie).value_or(0);
}

}  // namespace verbena
