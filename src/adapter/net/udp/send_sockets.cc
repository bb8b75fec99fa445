// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/send_sockets.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "adapter/net/udp/socket_address.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "base/socket_option.h"
#include "base/time.h"
#include "wire/roce/ip_header.h"
#include "wire/roce/packet.h"

namespace verbena::net {

namespace {

// RoCEv2 source ports are 0xC000-0xFFFF (IBTA annex A17, 17.9.2), for the network's flow hashing.
constexpr uint16_t kFirstPort = 0xc000;
constexpr uint32_t kPorts = 0x4000;
constexpr int kPortAttempts = 64;

// Interval between two searches for any free port, after one has failed. A search that fails takes
// milliseconds, as the kernel walks over all UDP sockets of the host, and each packet may need a socket.
constexpr Duration kPortSearchInterval = std::chrono::milliseconds(100);

// Makes the kernel drop whatever arrives at a send socket, as nobody reads from it.
void refuse_arrivals(int fd) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &drop};
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

// The ICRC of IPv4 is that of a packet that must not be fragmented, which needs no identification.
bool configure(int fd, bool ipv6) {
  if (!set_path_mtu_discovery(fd, ipv6, IP_PMTUDISC_DO)) return false;
  if (!ipv6) return set_option(fd, IPPROTO_IP, IP_TTL, kDefaultHopLimit);
  // Flow labels are sent without a lease on them, which Linux permits as long as nobody holds one
  // exclusively.
  set_option(fd, IPPROTO_IPV6, kIpv6FlowinfoSend, 1);
  return set_option(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, kDefaultHopLimit);
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

// Binds to any free port of the address `here`.
Result<uint16_t> bind_to_any(int fd, SocketAddress here) {
  static constinit std::atomic<TimePoint> next_search{};
  const TimePoint now = MonotonicClock::now();
  if (now < next_search.load(std::memory_order_relaxed)) return fail(EADDRINUSE);
  socklen_t length = here.length();
  if (bind(fd, &here.generic, length) == 0 && getsockname(fd, &here.generic, &length) == 0)
    return port_of(here);
  if (errno == EADDRINUSE) next_search.store(now + kPortSearchInterval, std::memory_order_relaxed);
  return fail(errno);
}

// Binds to the path's source and a random free port of the range. Another user can take the whole range: then
// any free port will do. So to stop new sockets, a user has to take all ephemeral ports of the host, too,
// which stops every program that uses UDP.
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
  return bind_to_any(fd, destination_of(reversed, 0));
}

// Maximum time of a datagram over loopback. It arrives at once, unless the machine is very busy.
constexpr int kProbeMilliseconds = 20;

constexpr int kIdentificationOffset = 4;

// Binds a socket whose datagrams may be fragmented to a free port of the address, which `name` receives.
UniqueFd open_bound(SocketAddress& name) {
  UniqueFd fd(plain_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (!fd) return fd;
  refuse_arrivals(fd.get());
  socklen_t length = name.length();
  if (!set_path_mtu_discovery(fd.get(), false, IP_PMTUDISC_DONT) ||
      bind(fd.get(), &name.generic, name.length()) != 0 ||
      getsockname(fd.get(), &name.generic, &length) != 0) {
    fd.reset();
  }
  return fd;
}

SocketAddress name_at(const roce::Address& address, uint16_t port) {
  roce::Path here;
  here.source = here.destination = address;
  return destination_of(here, port);
}

}  // namespace

IdentificationProbe::IdentificationProbe(const SendSocket& measured) : measured_(measured.fd.get()) {
  SocketAddress name = name_at(measured.source, 0);
  SocketAddress unconnected_name = name;
  fd_ = open_bound(name);
  unconnected_ = open_bound(unconnected_name);
  if (!fd_ || !unconnected_) return;
  const SocketAddress peer = name_at(measured.source, measured.port);
  if (connect(fd_.get(), &peer.generic, peer.length()) != 0) return;
  port_ = ntohs(name.ipv4.sin_port);
  unconnected_port_ = ntohs(unconnected_name.ipv4.sin_port);
  address_ = measured.source;
}

std::optional<uint8_t> IdentificationProbe::byte_of_next(uint32_t shift) {
  // The filter sees the datagram from its UDP header on, and the IP header by SKF_NET_OFF.
  std::array<sock_filter, 5> program = {{
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, static_cast<uint32_t>(SKF_NET_OFF + kIdentificationOffset)),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, shift),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff),
      BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, roce::kUdpHeaderBytes),
      BPF_STMT(BPF_RET | BPF_A, 0),
  }};
  const sock_fprog attached{static_cast<unsigned short>(program.size()), program.data()};
  if (setsockopt(fd_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &attached, sizeof attached) != 0)
    return std::nullopt;
  std::array<std::byte, 256> data{};
  const SocketAddress name = name_at(address_, port_);
  if (sendto(measured_, data.data(), data.size(), MSG_DONTWAIT, &name.generic, name.length()) < 0)
    return std::nullopt;
  pollfd wait{fd_.get(), POLLIN, 0};
  if (plain_poll(&wait, 1, kProbeMilliseconds) != 1) return std::nullopt;
  const ssize_t bytes = recv(fd_.get(), data.data(), data.size(), MSG_DONTWAIT);
  if (bytes < 0 || bytes > 0xff) return std::nullopt;
  return static_cast<uint8_t>(bytes);
}

// The kernel chooses the identification before it delivers, and the socket drops what it sends itself.
bool IdentificationProbe::take_shared() {
  const std::array<std::byte, 256> data{};
  const SocketAddress name = name_at(address_, unconnected_port_);
  return sendto(unconnected_.get(), data.data(), data.size(), MSG_DONTWAIT, &name.generic, name.length()) > 0;
}

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

namespace {

// A path with the socket's source and device.
roce::Path path_of(const SendSocket& socket) {
  roce::Path path;
  path.source = path.destination = socket.source;
  path.interface_index = socket.interface_index;
  return path;
}

// Makes `socket` send by the kernel's socket of `fresh`.
void take_over(SendSocket& socket, SendSocket& fresh) {
  socket.fd = std::move(fresh.fd);
  socket.port = fresh.port;
  socket.bound_to_interface = fresh.bound_to_interface;
  socket.latest = {};
}

}  // namespace

bool SendSockets::renew(SendSocket& socket) const {
  const auto fresh = open_send_socket(path_of(socket), send_buffer_bytes_);
  if (fresh) take_over(socket, **fresh);
  return fresh.has_value();
}

SendSocket* SendSockets::make(const roce::Path& path, uint32_t slot) {
  std::vector<SendSocket*>& made = made_[path.source.is_ipv4() ? 0 : 1];
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

Result<std::unique_ptr<FragmentSocket>> FragmentSocket::open(const roce::Path& path,
                                                             uint32_t send_buffer_bytes) {
  auto socket = open_send_socket(path, send_buffer_bytes);
  if (!socket) return tl::unexpected(socket.error());
  const int fd = (*socket)->fd.get();
  const bool ipv6 = !path.source.is_ipv4();
  if (!set_path_mtu_discovery(fd, ipv6, IP_PMTUDISC_DONT)) return fail(errno);
  if (!ipv6) {
    const SocketAddress own = name_at(path.source, (*socket)->port);
    if (connect(fd, &own.generic, own.length()) != 0) return fail(errno);
  }
  return std::unique_ptr<FragmentSocket>(new FragmentSocket(std::move(*socket)));
}

bool FragmentSocket::renew(uint32_t send_buffer_bytes) {
  const auto fresh = open(path_of(*socket_), send_buffer_bytes);
  if (!fresh) return false;
  take_over(*socket_, *(*fresh)->socket_);
  is_known_ = false;  // the new socket counts from another number
  return true;
}

PathMtu::PathMtu(const roce::Path& path) : ipv6_(!path.source.is_ipv4()) {
  constexpr uint32_t kSmallBuffer = 4096;
  auto socket = open_send_socket(path, kSmallBuffer);
  if (!socket) return;
  const SocketAddress there = destination_of(path, roce::kUdpPort);
  if (connect((*socket)->fd.get(), &there.generic, there.length()) == 0) socket_ = std::move(*socket);
}

bool PathMtu::takes(uint32_t udp_payload_bytes) const {
  if (socket_ == nullptr) return true;
  const int fd = socket_->fd.get();
  const auto mtu =
      ipv6_ ? get_option<int>(fd, IPPROTO_IPV6, IPV6_MTU) : get_option<int>(fd, IPPROTO_IP, IP_MTU);
  if (!mtu) return true;
  const uint32_t headers = (ipv6_ ? roce::kIpv6HeaderBytes : roce::kIpv4HeaderBytes) + roce::kUdpHeaderBytes;
  return udp_payload_bytes + headers <= static_cast<uint32_t>(*mtu);
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
  IdentificationProbe probe(*socket_);
  if (!probe.is_open()) return false;
  const auto low = probe.byte_of_next(0);
  if (!low || !probe.take_shared()) return false;
  const auto high = probe.byte_of_next(8);
  if (!high || !probe.take_shared()) return false;
  const auto third = probe.byte_of_next(0);
  // Else this is an older kernel, which has one count for all sockets.
  if (third != static_cast<uint8_t>(*low + 2)) return false;
  next_ = static_cast<uint16_t>((*high << 8 | static_cast<uint8_t>(*low + 1)) + 2);
  return is_known_ = true;
}

}  // namespace verbena::net
