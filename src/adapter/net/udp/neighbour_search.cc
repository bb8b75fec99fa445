// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/neighbour_search.h"

#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <sys/socket.h>

#include "adapter/net/udp/socket_address.h"
#include "base/plain_calls.h"

namespace verbena::net {
namespace {

constexpr uint16_t kDiscardPort = 9;

template <class Info>
void put_device(msghdr& message, int level, int type, const Info& info) {
  auto* header = static_cast<cmsghdr*>(message.msg_control);
  *header = {CMSG_LEN(sizeof info), level, type};
  std::memcpy(CMSG_DATA(header), &info, sizeof info);
  message.msg_controllen = CMSG_SPACE(sizeof info);
}

}  // namespace

UniqueFd open_neighbour_search(bool ipv4) {
  return UniqueFd(
      plain_socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP));
}

int search_neighbour(int socket, uint32_t interface_index, const roce::Address& neighbour) {
  roce::Path there;
  there.destination = neighbour;
  there.interface_index = interface_index;
  SocketAddress name = destination_of(there, kDiscardPort);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))]{};
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = name.length();
  message.msg_control = control;
  if (neighbour.is_ipv4()) {
    in_pktinfo info{};
    info.ipi_ifindex = static_cast<int>(interface_index);
    put_device(message, IPPROTO_IP, IP_PKTINFO, info);
  } else {
    in6_pktinfo info{};
    info.ipi6_ifindex = interface_index;
    put_device(message, IPPROTO_IPV6, IPV6_PKTINFO, info);
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

}  // namespace verbena::net
