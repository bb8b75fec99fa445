// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/send_sockets.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "adapter/net/udp/socket_address.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "base/socket_option.h"

namespace verbena::net {
namespace {

// RoCEv2 source ports are 0xC000-0xFFFF (IBTA annex A17, 17.9.2), for the network's flow hashing.
constexpr uint16_t kFirstPort = 0xc000;
constexpr uint32_t kPorts = 0x4000;
constexpr int kPortAttempts = 64;

// Makes the kernel drop whatever arrives at a send socket, as nobody reads from it.
void refuse_arrivals(int fd) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

// The ICRC of IPv4 is that of a packet that must not be fragmented, which needs no identification.
bool forbid_fragments(int fd, bool ipv6) {
  return set_path_mtu_discovery(fd, ipv6, IP_PMTUDISC_DO);
}

bool configure(int fd, bool ipv6) {
  if (!ipv6) {
    return forbid_fragments(fd, ipv6) && set_option(fd, IPPROTO_IP, IP_TTL, kDefaultHopLimit);
  }
  // Flow labels are sent without a lease on them, which Linux permits as long as nobody holds one
  // exclusively.
  set_option(fd, IPPROTO_IPV6, kIpv6FlowinfoSend, 1);
  return forbid_fragments(fd, ipv6) && set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, kDefaultHopLimit);
}

// Maximum number of descriptors for one address family: an eighth of the process's limit.
size_t descriptor_share() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return roce::Qpn::kSlots;
  return std::clamp<size_t>(limit.rlim_cur / 8, 1, roce::Qpn::kSlots);
}

// Makes packets leave by the path's device. Needs no privilege since Linux 5.7; otherwise packets name the
// device themselves.
bool bind_to_interface(int fd, uint32_t interface_index) {
  return interface_index == 0 ||
         set_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX, static_cast<int>(interface_index));
}

// Binds to the path's source and a random free port of the range.
Result<uint16_t> bind_random(int fd, const roce::Path& path) {
  roce::Path reversed = path;
  std::swap(reversed.source, reversed.destination);
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    uint16_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return fail(errno);
    const auto port = static_cast<uint16_t>(kFirstPort + random % kPorts);
    const SocketAddress here = destination_of(reversed, port);
    if (bind(fd, &here.generic, here.length()) == 0) return port;
    if (errno != EADDRINUSE) return fail(errno);
  }
  return fail(EADDRINUSE);
}

}  // namespace

Result<std::unique_ptr<SendSocket>> open_send_socket(const roce::Path& path, uint32_t send_buffer_bytes) {
  const bool ipv6 = !path.source.is_ipv4();
  auto result = std::make_unique<SendSocket>();
  result->fd = UniqueFd(
      plain_socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (!result->fd) return fail(errno);
  const int fd = result->fd.get();
  if (ipv6 && !set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)) return fail(errno);
  if (!configure(fd, ipv6)) return fail(errno);
  refuse_arrivals(fd);
  set_send_buffer(fd, static_cast<int>(send_buffer_bytes));
  result->interface_index = path.interface_index;
  result->bound_to_interface = bind_to_interface(fd, path.interface_index);
  const Result<uint16_t> port = bind_random(fd, path);
  if (!port) return tl::unexpected(port.error());
  result->port = *port;
  result->source = path.source;
  return result;
}

Result<std::unique_ptr<SendSocket>> share_receive_socket(int receive_socket, uint16_t port,
                                                         uint32_t send_buffer_bytes) {
  auto result = std::make_unique<SendSocket>();
  result->fd = UniqueFd(::fcntl(receive_socket, F_DUPFD_CLOEXEC, 3));
  if (!result->fd) return fail(errno);
  const int fd = result->fd.get();
  SocketAddress local{};
  socklen_t length = sizeof local;
  if (getsockname(fd, &local.generic, &length) != 0) return fail(errno);
  // A dual-stack socket sends both families, each with its own options.
  if (!configure(fd, false)) return fail(errno);
  if (local.generic.sa_family == AF_INET6 && !configure(fd, true)) return fail(errno);
  set_send_buffer(fd, static_cast<int>(send_buffer_bytes));
  result->port = port;
  return result;
}

SendSockets::SendSockets(uint32_t send_buffer_bytes)
    : send_buffer_bytes_(send_buffer_bytes), max_(descriptor_share()) {}

const SendSocket* SendSockets::make(const roce::Path& path, uint32_t slot) {
  std::vector<const SendSocket*>& made = made_[path.source.is_ipv4() ? 0 : 1];
  if (made.size() < max_) {
    try {
      made.reserve(made.size() + 1);
      Result<std::unique_ptr<SendSocket>> opened = open_send_socket(path, send_buffer_bytes_);
      if (opened) {
        (*opened)->next = std::move(by_slot_[slot]);
        by_slot_[slot] = std::move(*opened);
        made.push_back(by_slot_[slot].get());
        return made.back();
      }
      log_debug("no socket to send to slot {}: errno {}", slot, opened.error().code);
    } catch (const std::bad_alloc&) {
      log_debug("no memory for a socket to send to slot {}", slot);
    }
  }
  return made.empty() ? nullptr : made[slot % made.size()];
}

}  // namespace verbena::net
