// SPDX-License-Identifier: Apache-2.0
#include "net/udp/send_sockets.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/log.h"
#include "net/udp/socket_address.h"

namespace verbena::net {
namespace {

// RoCEv2 source ports are taken from 0xC000-0xFFFF (IBTA annex A17, 17.9.2), for the network's flow hashing.
constexpr uint16_t kFirstPort = 0xc000;
constexpr uint32_t kPorts = 0x4000;
constexpr int kPortAttempts = 64;

bool set_option(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// Nobody reads from a send socket; what strangers send there is dropped on arrival.
void refuse_arrivals(int fd) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

bool configure(int fd, bool ipv6) {
  if (!ipv6) {
    return set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) &&
           set_option(fd, IPPROTO_IP, IP_TTL, kDefaultHopLimit);
  }
  // The label of a path is sent without a lease on it, which Linux permits as long as nobody holds one
  // exclusively.
  set_option(fd, IPPROTO_IPV6, kIpv6FlowinfoSend, 1);
  return set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) &&
         set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
         set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, kDefaultHopLimit);
}

// Binds to a random free port of the range.
Result<uint16_t> bind_random(int fd, bool ipv6) {
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    uint16_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return fail(errno);
    const auto port = static_cast<uint16_t>(kFirstPort + random % kPorts);
    SocketAddress any{};
    if (ipv6) {
      any.ipv6 = {};
      any.ipv6.sin6_family = AF_INET6;
      any.ipv6.sin6_port = htons(port);
    } else {
      any.ipv4.sin_family = AF_INET;
      any.ipv4.sin_port = htons(port);
    }
    if (bind(fd, &any.generic, any.length()) == 0) return port;
    if (errno != EADDRINUSE) return fail(errno);
  }
  return fail(EADDRINUSE);
}

}  // namespace

Result<SendSocket> SendSockets::open(bool ipv6) const {
  SendSocket result;
  result.fd.reset(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (!result.fd) return fail(errno);
  const int fd = result.fd.get();
  if (!configure(fd, ipv6)) return fail(errno);
  refuse_arrivals(fd);
  set_option(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(send_buffer_bytes_));
  const Result<uint16_t> port = bind_random(fd, ipv6);
  if (!port) return tl::unexpected(port.error());
  result.port = *port;
  return result;
}

const SendSocket* SendSockets::make(bool ipv6, uint32_t slot) {
  Result<SendSocket> made = open(ipv6);
  if (!made) {
    log_warning("no socket to send to slot {} over IPv{}: errno {}", slot, ipv6 ? 6 : 4, made.error().code);
    return any_[ipv6];
  }
  by_slot_[ipv6][slot] = std::make_unique<SendSocket>(std::move(*made));
  any_[ipv6] = by_slot_[ipv6][slot].get();
  return any_[ipv6];
}

}  // namespace verbena::net
