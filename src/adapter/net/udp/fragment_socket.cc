// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/fragment_socket.h"

#include <array>
#include <cerrno>

#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "adapter/net/udp/socket_address.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "base/socket_option.h"
#include "wire/roce/ip_header.h"
#include "wire/roce/packet.h"

namespace verbena::net {
namespace {

// Maximum time of a datagram over loopback. It arrives at once, unless the machine is very busy.
constexpr int kProbeMilliseconds = 20;

// A socket of this process to which datagrams are sent to learn their identifications.
class IdentificationProbe {
 public:
  explicit IdentificationProbe(const roce::Address& address) {
    roce::Path here;
    here.source = here.destination = address;
    name_ = destination_of(here, 0);
    fd_ = UniqueFd(plain_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
    socklen_t length = name_.length();
    is_open_ = fd_ && set_path_mtu_discovery(fd_.get(), false, IP_PMTUDISC_DONT) &&
               bind(fd_.get(), &name_.generic, name_.length()) == 0 &&
               getsockname(fd_.get(), &name_.generic, &length) == 0;
  }

  bool is_open() const { return is_open_; }

  // Sends a datagram from `fd` and returns the byte of its identification that is `shift` bits up.
  std::optional<uint8_t> byte_of_next(int fd, uint32_t shift) {
    // The filter sees the datagram from its UDP header on, and the IP header by SKF_NET_OFF.
    std::array<sock_filter, 5> program = {{
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, static_cast<uint32_t>(SKF_NET_OFF + kIdentificationOffset)),
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, shift),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff),
        BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, kUdpHeaderBytes),
        BPF_STMT(BPF_RET | BPF_A, 0),
    }};
    const sock_fprog attached{static_cast<unsigned short>(program.size()), program.data()};
    if (setsockopt(fd_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &attached, sizeof attached) != 0)
      return std::nullopt;
    const std::array<std::byte, 256> data{};
    if (sendto(fd, data.data(), data.size(), MSG_DONTWAIT, &name_.generic, name_.length()) < 0)
      return std::nullopt;
    pollfd wait{fd_.get(), POLLIN, 0};
    if (plain_poll(&wait, 1, kProbeMilliseconds) != 1) return std::nullopt;
    std::array<std::byte, 256> cut;
    const ssize_t bytes = recv(fd_.get(), cut.data(), cut.size(), MSG_DONTWAIT);
    if (bytes < 0 || bytes > 0xff) return std::nullopt;
    return static_cast<uint8_t>(bytes);
  }

  // Takes an identification from the count that all unconnected sockets share.
  bool take_shared() { return byte_of_next(fd_.get(), 0).has_value(); }

 private:
  static constexpr int kIdentificationOffset = 4;
  static constexpr uint32_t kUdpHeaderBytes = 8;

  UniqueFd fd_;
  SocketAddress name_{};
  bool is_open_ = false;
};

}  // namespace

Result<std::unique_ptr<FragmentSocket>> FragmentSocket::open(const roce::Path& path,
                                                             uint32_t send_buffer_bytes) {
  auto socket = open_send_socket(path, send_buffer_bytes);
  if (!socket) return tl::unexpected(socket.error());
  const int fd = (*socket)->fd.get();
  const bool ipv6 = !path.source.is_ipv4();
  if (!set_path_mtu_discovery(fd, ipv6, IP_PMTUDISC_DONT)) return fail(errno);
  if (!ipv6) {
    roce::Path here;
    here.source = here.destination = path.source;
    const SocketAddress own = destination_of(here, (*socket)->port);
    if (connect(fd, &own.generic, own.length()) != 0) return fail(errno);
  }
  return std::unique_ptr<FragmentSocket>(new FragmentSocket(std::move(*socket)));
}

PathMtu::PathMtu(const roce::Path& path) : ipv6_(!path.source.is_ipv4()) {
  constexpr uint32_t kSmallBuffer = 4096;
  auto socket = open_send_socket(path, kSmallBuffer);
  if (!socket) return;
  const SocketAddress there = destination_of(path, roce::kUdpPort);
  if (connect((*socket)->fd.get(), &there.generic, there.length()) == 0) socket_ = std::move(*socket);
}

bool PathMtu::takes(uint32_t udp_payload_bytes) const {
  int mtu = 0;
  socklen_t length = sizeof mtu;
  const int level = ipv6_ ? IPPROTO_IPV6 : IPPROTO_IP;
  if (socket_ == nullptr ||
      getsockopt(socket_->fd.get(), level, ipv6_ ? IPV6_MTU : IP_MTU, &mtu, &length) != 0)
    return true;
  const uint32_t headers = (ipv6_ ? roce::kIpv6HeaderBytes : roce::kIpv4HeaderBytes) + roce::kUdpHeaderBytes;
  return udp_payload_bytes + headers <= static_cast<uint32_t>(mtu);
}

std::optional<uint16_t> FragmentSocket::next_identification() {
  if (is_known_) return next_;
  if (attempts_left_ == 0) return std::nullopt;
  if (learn()) return next_;
  if (--attempts_left_ == 0)
    log_info("the ICRC of packets in IP fragments is not exact: their identification is not known");
  return std::nullopt;
}

bool FragmentSocket::learn() {
  IdentificationProbe probe(socket_->source);
  if (!probe.is_open()) return false;
  const int fd = socket_->fd.get();
  const auto low = probe.byte_of_next(fd, 0);
  if (!low || !probe.take_shared()) return false;
  const auto high = probe.byte_of_next(fd, 8);
  if (!high || !probe.take_shared()) return false;
  const auto third = probe.byte_of_next(fd, 0);
  // Else this is an older kernel, which has one count for all sockets.
  if (third != static_cast<uint8_t>(*low + 2)) return false;
  next_ = static_cast<uint16_t>((*high << 8 | static_cast<uint8_t>(*low + 1)) + 2);
  return is_known_ = true;
}

}  // namespace verbena::net
