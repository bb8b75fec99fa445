// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/multicast_socket.h"

#include <cerrno>

#include <netinet/in.h>
#include <sys/socket.h>

#include "adapter/net/udp/socket_address.h"
#include "adapter/net/udp/udp_port.h"
#include "base/plain_calls.h"
#include "base/socket_option.h"

namespace verbena::net {
namespace {

constexpr int kReceiveBufferBytes = 4 << 20;

enum class Membership : uint8_t { kBegins, kEnds };

bool change(Membership membership, int fd, const SocketAddress& group, uint32_t interface_index) {
  const bool begins = membership == Membership::kBegins;
  if (group.generic.sa_family == AF_INET) {
    ip_mreqn request{};
    request.imr_multiaddr = group.ipv4.sin_addr;
    request.imr_ifindex = static_cast<int>(interface_index);
    return set_option(fd, IPPROTO_IP, begins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, request);
  }
  ipv6_mreq request{};
  request.ipv6mr_multiaddr = group.ipv6.sin6_addr;
  request.ipv6mr_interface = interface_index;
  return set_option(fd, IPPROTO_IPV6, begins ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, request);
}

SocketAddress address_of(const roce::Address& group, uint32_t interface_index, uint16_t port) {
  roce::Path path;
  path.destination = group;
  path.interface_index = interface_index;
  return destination_of(path, port);
}

}  // namespace

void refuse_multicast(int fd) {
  // A dual-stack socket takes IPv4's option, too; an IPv4 socket refuses IPv6's.
  set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, int{0});
  set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, int{0});
}

Result<UniqueFd> open_multicast_socket(const roce::Address& group, uint32_t interface_index, uint16_t port) {
  const SocketAddress address = address_of(group, interface_index, port);
  const int family = address.generic.sa_family;
  UniqueFd fd(plain_socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (!fd) return fail(errno);
  if (!set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT, int{1})) return fail(errno);
  if (family == AF_INET6 && !set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, int{1})) return fail(errno);
  // An IPv6 socket receives the group's packets from any interface, whichever it has joined on. If this call
  // is refused (before Linux 5.7, without privilege), the reader checks the interface.
  set_option(fd.get(), SOL_SOCKET, SO_BINDTOIFINDEX, static_cast<int>(interface_index));
  refuse_multicast(fd.get());
  if (bind(fd.get(), &address.generic, address.length()) != 0) return fail(errno);
  if (const Result<void> set = set_receive_options(fd.get()); !set) return tl::unexpected(set.error());
  set_ip_details(fd.get(), true);  // for the GRH
  set_receive_buffer(fd.get(), kReceiveBufferBytes);
  if (!change(Membership::kBegins, fd.get(), address, interface_index)) return fail(errno);
  forbid_sending(fd.get());
  return fd;
}

// A failure means that the membership has ended with the interface.
void leave_multicast(int fd, const roce::Address& group, uint32_t interface_index) {
  change(Membership::kEnds, fd, address_of(group, interface_index, 0), interface_index);
}

}  // namespace verbena::net
