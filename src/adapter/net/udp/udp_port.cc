// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/udp_port.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "adapter/memory/guarded.h"
#include "adapter/net/udp/multicast_socket.h"
#include "adapter/net/udp/sender.h"
#include "adapter/net/udp/socket_address.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "base/socket_option.h"
#include "control/protocol/messages.h"

namespace verbena::net {

namespace {

Result<UniqueFd> open_bound(int family, uint16_t port) {
  UniqueFd fd(plain_socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP));
  if (!fd) return fail(errno);
  if (!set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1)) return fail(errno);
  if (const Result<void> set = set_receive_options(fd.get()); !set) return tl::unexpected(set.error());
  refuse_multicast(fd.get());  // groups have sockets of their own
  SocketAddress any{};
  if (family == AF_INET6) {
    if (!set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0)) return fail(errno);
    any.ipv6 = {};
    any.ipv6.sin6_family = AF_INET6;
    any.ipv6.sin6_port = htons(port);
  } else {
    any.ipv4.sin_family = AF_INET;
    any.ipv4.sin_port = htons(port);
  }
  if (bind(fd.get(), &any.generic, any.length()) != 0) return fail(errno);
  return fd;
}

class SocketPort final : public SplitPort<UdpPort, Receiver> {
 public:
  using SplitPort::SplitPort;
  void want_ip_details(bool wanted) override { set_ip_details(receive_fd(), wanted); }
};

using protocol::ForwardedDatagram;

DatagramOrigin origin_of(const ForwardedDatagram& head) {
  DatagramOrigin origin;
  std::ranges::copy(head.source, origin.path.source.bytes.begin());
  std::ranges::copy(head.destination, origin.path.destination.bytes.begin());
  origin.path.interface_index = head.interface_index;
  origin.path.flow_label = head.flow_label & 0xfffff;
  origin.path.traffic_class = head.traffic_class;
  origin.path.hop_limit = head.hop_limit;
  origin.source_port = head.source_port;
  origin.segment_bytes = head.segment_bytes;
  origin.reassembled = head.reassembled == 1;
  origin.has_destination = true;
  return origin;
}

using ForwardedPort = SplitPort<Port, ForwardedReceiver>;

bool keeps_messages_apart(int socket) {
  return get_option<int>(socket, SOL_SOCKET, SO_DOMAIN) == AF_UNIX &&
         get_option<int>(socket, SOL_SOCKET, SO_TYPE) == SOCK_SEQPACKET;
}

}  // namespace

Result<void> set_receive_options(int fd) {
  SocketAddress local{};
  socklen_t length = sizeof local;
  if (getsockname(fd, &local.generic, &length) != 0) return fail(errno);
  const bool ipv6 = local.generic.sa_family == AF_INET6;
  if (!ipv6 && local.generic.sa_family != AF_INET) return fail(EAFNOSUPPORT);
  // Without the addresses no ICRC can be checked.
  const bool addresses =
      ipv6 ? set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) : set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
  if (!addresses) return fail(errno);
  set_option(fd, IPPROTO_IP, kIpReceiveFragmentSize, 1);  // the ICRC of fragmented IPv4 differs
  set_option(fd, IPPROTO_UDP, UDP_GRO, 1);                // speed only; Linux before 5.0 has none
  // The kernel's rxe sends UDP over IPv6 without a checksum. RFC 6935 allows this where another check covers
  // the packet, as the ICRC does.
  if (ipv6) set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
  return {};
}

// The kernel returns ENOTCONN, and does it all the same (inet_shutdown()).
void forbid_sending(int fd) {
  ::shutdown(fd, SHUT_WR);
}

void set_ip_details(int fd, bool wanted) {
  // A dual-stack socket takes IPv4's options for its IPv4 packets; an IPv4 socket refuses IPv6's.
  static constexpr struct {
    int level;
    int name;
  } kOptions[] = {{IPPROTO_IP, IP_RECVTOS},
                  {IPPROTO_IP, IP_RECVTTL},
                  {IPPROTO_IPV6, IPV6_RECVTCLASS},
                  {IPPROTO_IPV6, IPV6_RECVHOPLIMIT},
                  {IPPROTO_IPV6, kIpv6Flowinfo}};
  for (const auto& option : kOptions) set_option(fd, option.level, option.name, int{wanted});
}

Result<UniqueFd> open_receive_socket(uint16_t port) {
  Result<UniqueFd> fd = open_bound(AF_INET6, port);
  if (fd || (fd.error().code != EAFNOSUPPORT && fd.error().code != EADDRNOTAVAIL)) return fd;
  return open_bound(AF_INET, port);
}

Result<void> attach_slot_steering(int any_socket_of_the_group, uint32_t sockets) {
  // The program sees the UDP payload. The destination QPN is in BTH bytes 5 to 7, and its top kSlotBits are
  // the slot. A packet that is too short ends the program with 0, as does a slot without a socket: the kernel
  // would spread such an index over the sockets by hash.
  constexpr uint32_t kQpnOffset = 5;
  std::array<sock_filter, 5> program = {{
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kQpnOffset),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16 - roce::Qpn::kSlotBits),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, sockets, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_A, 0),
  }};
  static_assert(roce::Qpn::kSlotBits <= 16);
  const sock_fprog attached{static_cast<unsigned short>(program.size()), program.data()};
  if (setsockopt(any_socket_of_the_group, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &attached, sizeof attached) !=
      0) {
    return fail(errno);
  }
  return {};
}

Result<std::unique_ptr<UdpPort>> UdpPort::create(UniqueFd receive_socket, const UdpPortOptions& options) {
  const int fd = receive_socket.get();
  if (options.slot >= roce::Qpn::kSlots) return fail(EINVAL);
  if (const Result<void> set = set_receive_options(fd); !set) return tl::unexpected(set.error());
  SocketAddress local{};
  socklen_t length = sizeof local;
  if (getsockname(fd, &local.generic, &length) != 0) return fail(errno);
  set_ip_details(fd, true);
  set_receive_buffer(fd, static_cast<int>(options.receive_buffer_bytes));
  memory::install_fault_guard();  // send() reads the application's memory
  try {
    std::unique_ptr<SendSocket> management;
    if (options.sends_from_port) {
      auto shared = share_receive_socket(fd, port_of(local), options.send_buffer_bytes);
      if (!shared) return tl::unexpected(shared.error());
      management = std::move(*shared);
    }
    return std::make_unique<SocketPort>(std::move(receive_socket), port_of(local), options,
                                        std::move(management));
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

namespace {

// Opens a socket that never becomes readable.
UniqueFd open_silent() {
  return UniqueFd(plain_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

ForwardedReceiver::ForwardedReceiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters)
    : socket_(std::move(socket)),
      silent_(open_silent()),
      splitter_(port, slot, counters),
      batch_(sizeof(ForwardedDatagram) + protocol::kMaxForwardedBytes) {}

uint32_t ForwardedReceiver::receive(PacketHandler& handler, uint32_t budget) {
  return receive_batches(socket_.get(), budget, ahead_, batch_,
                         [&](uint32_t i) { return take(handler, batch_.data(i)); });
}

// Returns the number of packets in the message; -1: the agent has ended, or the message is malformed.
int64_t ForwardedReceiver::take(PacketHandler& handler, ConstBytes message) {
  ForwardedDatagram head{};
  if (message.size() >= sizeof head) std::memcpy(&head, message.data(), sizeof head);
  if (head.magic != ForwardedDatagram::kMagic) {
    become_deaf();
    return -1;
  }
  return splitter_.split(handler, origin_of(head), message.subspan(sizeof head));
}

// Stops receiving, because the other end is closed. A closed socket is always readable, and a thread that
// sleeps for it would not sleep. So another socket, which never becomes readable, takes its descriptor
// number.
void ForwardedReceiver::become_deaf() {
  if (!std::exchange(is_deaf_, true))
    log_warning("the agent hands over no more packets: nothing arrives by the wire");
  if (!silent_) silent_ = open_silent();
  if (silent_) socket_.become(silent_.take());
}

Result<std::unique_ptr<Port>> make_forwarded_port(UniqueFd socket, const UdpPortOptions& options) {
  if (options.slot >= roce::Qpn::kSlots || !keeps_messages_apart(socket.get())) return fail(EINVAL);
  memory::install_fault_guard();  // send() reads the application's memory
  try {
    return std::make_unique<ForwardedPort>(std::move(socket), options.port, options);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

}  // namespace verbena::net
