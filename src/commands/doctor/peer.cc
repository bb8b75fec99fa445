// SPDX-License-Identifier: Apache-2.0
#include "commands/doctor/peer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <vector>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <unistd.h>

#include "base/format.h"
#include "base/socket_option.h"
#include "base/unique_fd.h"
#include "commands/verbena/names.h"
#include "control/client/command_client.h"
#include "control/model/link.h"
#include "wire/roce/packet.h"
#include "wire/roce/prefix.h"

namespace verbena::commands::doctor {
namespace {

using control::LinkStatus;
using control::MadClient;

constexpr Duration kMadPatience = std::chrono::milliseconds(500);
constexpr uint32_t kMadRetries = 3;
constexpr Duration kEchoPatience = std::chrono::milliseconds(300);
constexpr int kEchoTries = 3;
constexpr size_t kSmallEcho = 64;
constexpr Duration kErrorPatience = std::chrono::milliseconds(3500);  // ARP gives up after three seconds
constexpr uint32_t kLargestPathMtu = 4096;
constexpr uint32_t kSmallestPathMtu = 256;

bool connect_to(const sockaddr_storage& address, int socket) {
  const socklen_t length = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0;
}

roce::Address gid_of(const sockaddr_storage& address) {
  roce::Address gid;
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return roce::Address::from_ipv4(reinterpret_cast<const uint8_t*>(&ipv4.sin_addr));
  }
  std::memcpy(gid.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, gid.bytes.size());
  return gid;
}

// Returns a socket connected to `peer`; empty, with errno set, if the kernel has no route.
UniqueFd connected_socket(const sockaddr_storage& peer) {
  UniqueFd socket(::socket(peer.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket && !connect_to(peer, socket.get())) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

// The checksum of RFC 1071, for ICMPv4. The kernel computes that of ICMPv6.
uint16_t checksum_of(const std::vector<std::byte>& packet) {
  uint32_t sum = 0;
  for (size_t i = 0; i < packet.size(); ++i) {
    const auto byte = static_cast<uint32_t>(packet[i]);
    sum += i % 2 == 0 ? byte << 8 : byte;
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return htons(static_cast<uint16_t>(~sum));
}

// Sends ICMP echo requests to a host, to find out whether it is up and which packet sizes the path carries.
// Packets are not fragmented, and the kernel's cached path MTU is ignored (IP_PMTUDISC_PROBE).
class Echo {
 public:
  // Tries a datagram ICMP socket first, as ping(8): it needs no privilege if a sysctl allows it
  // (net.ipv4.ping_group_range). A raw socket needs CAP_NET_RAW. is_open() is false if this user has neither.
  explicit Echo(const sockaddr_storage& destination) : is_ipv4_(destination.ss_family == AF_INET) {
    for (const int type : {SOCK_DGRAM, SOCK_RAW}) {
      const int protocol = is_ipv4_ ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6};
      socket_ = UniqueFd(::socket(destination.ss_family, type | SOCK_CLOEXEC, protocol));
      if (!socket_) continue;
      is_raw_ = type == SOCK_RAW;
      set_path_mtu_discovery(socket_.get(), !is_ipv4_, IP_PMTUDISC_PROBE);
      if (!connect_to(destination, socket_.get())) socket_.reset();
      return;
    }
  }

  bool is_open() const { return static_cast<bool>(socket_); }

  // Whether the host answers an IP packet of `packet_bytes`, IP and ICMP headers included.
  bool comes_back(size_t packet_bytes) {
    for (int i = 0; i < kEchoTries; ++i) {
      const bool sent = send(packet_bytes);
      if (!sent && errno == EMSGSIZE) return false;
      if (sent && await()) return true;
    }
    return false;
  }

 private:
  bool send(size_t packet_bytes) {
    const size_t ip_bytes = is_ipv4_ ? sizeof(iphdr) : sizeof(ip6_hdr);
    std::vector<std::byte> packet(std::max(packet_bytes, ip_bytes + sizeof(icmphdr)) - ip_bytes);
    icmphdr header{};
    header.type = is_ipv4_ ? uint8_t{ICMP_ECHO} : uint8_t{ICMP6_ECHO_REQUEST};
    header.un.echo.id = id_;
    header.un.echo.sequence = htons(++sequence_);
    std::memcpy(packet.data(), &header, sizeof header);
    if (is_raw_ && is_ipv4_) {
      header.checksum = checksum_of(packet);
      std::memcpy(packet.data(), &header, sizeof header);
    }
    return ::send(socket_.get(), packet.data(), packet.size(), 0) == static_cast<ssize_t>(packet.size());
  }

  // Waits for the reply. A raw socket also receives replies for other programs, and with IPv4 the IP header.
  // On a datagram socket the kernel replaces the identifier with its own.
  bool await() {
    const TimePoint end = MonotonicClock::now() + kEchoPatience;
    std::array<std::byte, 65'536> packet;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - MonotonicClock::now()).count();
      pollfd entry{socket_.get(), POLLIN, 0};
      if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) <= 0) return false;
      const ssize_t count = ::recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
      if (count < 0 && errno != EAGAIN && errno != EINTR) return false;  // an ICMP error: unreachable, ...
      const bool has_ip_header = is_raw_ && is_ipv4_ && count > 0;
      const size_t at = has_ip_header ? (static_cast<size_t>(packet[0]) & 15) * 4 : size_t{0};
      if (count < static_cast<ssize_t>(at + sizeof(icmphdr))) continue;
      icmphdr header{};
      std::memcpy(&header, packet.data() + at, sizeof header);
      const bool is_reply = header.type == (is_ipv4_ ? uint8_t{ICMP_ECHOREPLY} : uint8_t{ICMP6_ECHO_REPLY});
      const bool is_ours = !is_raw_ || header.un.echo.id == id_;
      if (is_reply && is_ours && header.un.echo.sequence == htons(sequence_)) return true;
    }
  }

  bool is_ipv4_;
  UniqueFd socket_;
  bool is_raw_ = false;
  uint16_t id_ = htons(static_cast<uint16_t>(::getpid()));
  uint16_t sequence_ = 0;
};

const LinkStatus* link_with(const control::AgentStatus& agent, const roce::Address& address) {
  for (const LinkStatus& one : agent.links) {
    const auto has = [&](const control::GidEntry& entry) { return entry.gid == address; };
    if (std::ranges::any_of(one.link.gids, has)) return &one;
  }
  return nullptr;
}

bool accepts(const control::Link& link, const roce::Address& peer) {
  return link.peers.empty() ||
         std::ranges::any_of(link.peers, [&](const roce::Prefix& prefix) { return prefix.contains(peer); });
}

// Queries the peer's version, and if it reports none, its performance counters.
void ask(const LinkStatus& one, const roce::Address& peer, PeerLook& look) {
  const auto client = MadClient::connect(one.link.device_index, {.start_agent = false, .agent_program = {}});
  if (!client) return;
  TimePoint began = MonotonicClock::now();
  auto answer = (*client)->ask(peer, mad::agent_info_request(1).bytes, mad::kAnnouncementOui, kMadPatience,
                               kMadRetries);
  if (!answer) return;
  look.round_trip = MonotonicClock::now() - began;
  look.kind = PeerKind::kOther;
  if (const auto info = mad::decode_agent_info(mad::Mad{*answer})) {
    look.kind = PeerKind::kVerbena;
    look.info = *info;
    return;
  }
  mad::Mad request;
  request.set_kind(mad::kClassPerformance, 1, mad::kMethodGet, mad::kAttributeClassPortInfo);
  request.set(mad::kTransactionAt, uint64_t{2});
  began = MonotonicClock::now();
  answer = (*client)->ask(peer, request.bytes, 0, kMadPatience, kMadRetries);
  if (!answer) return;
  // The first query may include the time for address resolution.
  look.round_trip = std::min<Duration>(look.round_trip, MonotonicClock::now() - began);
  if (mad::Mad{*answer}.get<uint16_t>(mad::kStatusAt) == 0) {
    look.kind = PeerKind::kPerformance;
  }
}

// Sends an empty datagram, which every stack drops. Returns the error that the kernel or the peer's kernel
// reports.
int udp_error(const sockaddr_storage& peer) {
  const UniqueFd socket = connected_socket(peer);
  if (!socket) return errno;
  // IP_RECVERR makes the kernel report soft errors, such as EHOSTUNREACH.
  const bool is_ipv4 = peer.ss_family == AF_INET;
  const int on = 1;
  ::setsockopt(socket.get(), is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, is_ipv4 ? IP_RECVERR : IPV6_RECVERR, &on,
               sizeof on);
  if (::send(socket.get(), "", 0, 0) < 0) return errno;
  pollfd entry{socket.get(), POLLIN, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(kErrorPatience).count();
  ::poll(&entry, 1, static_cast<int>(ms));
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

void measure(const sockaddr_storage& peer, PeerLook& look) {
  Echo echo(peer);
  if (!echo.is_open()) return;
  look.echoes = echo.comes_back(kSmallEcho);
  if (!*look.echoes) return;
  look.widest = 0;
  for (uint32_t mtu = std::min(look.path_mtu, kLargestPathMtu); mtu >= kSmallestPathMtu; mtu /= 2) {
    if (!echo.comes_back(mtu + control::kPacketOverhead)) continue;
    look.widest = mtu;
    return;
  }
}

constexpr const char* kPeerSubject = "peer";
constexpr const char* kPathSubject = "mtu";

// ---- obstacles on this host

// Reports why the peer could not be queried. False: it could not.
bool look_at_this_end(const PeerLook& look, Findings& findings) {
  if (look.route_error != 0) {
    findings.fault(
        kPeerSubject,
        verbena::format("this host has no way to {}: {}", look.address, std::strerror(look.route_error)),
        verbena::format("see 'ip route get {}'; add a route or an address of that network", look.address));
  } else if (!look.no_wire.empty()) {
    findings.fault(kPeerSubject,
                   verbena::format("the agent of this host has no UDP port 4791: {}", look.no_wire),
                   "'verbena doctor' names who has the port");
  } else if (!look.has_link) {
    findings.fault(
        kPeerSubject,
        verbena::format("packets to {} leave from {}, which is no link's address", look.address, look.source),
        verbena::format("'verbena link show' lists the links; 'ip route get {}' the device, which needs one: "
                        "verbena link add NAME DEV",
                        look.address));
  } else if (!look.is_up) {
    findings.fault(kPeerSubject,
                   verbena::format("link {}, which leads to {}, is down", look.link, look.address),
                   "'verbena doctor' says why");
  } else if (look.is_refused) {
    findings.fault(kPeerSubject,
                   verbena::format("link {} does not accept packets from {} (its peers are set)", look.link,
                                   look.address),
                   verbena::format("verbena link set {} peers any, or name its network", look.link));
  } else {
    return true;
  }
  return false;
}

// ---- the peer does not answer

void report_silence(const PeerLook& look, Findings& findings) {
  const std::string& host = look.address;
  if (look.udp_error == ECONNREFUSED) {
    findings.fault(
        kPeerSubject, verbena::format("{} is there, and nobody listens on UDP port 4791", host),
        "start an agent there (verbena agent): one that a program starts ends with the program; or, on a "
        "host with rdma_rxe, add a link (rdma link add rxe0 type rxe netdev DEV)");
  } else if (look.udp_error == EHOSTUNREACH) {
    findings.fault(
        kPeerSubject,
        verbena::format("no host answers at {} (ARP, neighbour discovery, or a router said so)", host),
        verbena::format("check the address and the cable; see 'ip neigh show {}'", host));
  } else if (look.udp_error == EACCES || look.udp_error == EPERM) {
    findings.fault(kPeerSubject,
                   verbena::format("this host's firewall lets nothing out to UDP port 4791 of {}", host),
                   "let UDP port 4791 out; 'sudo verbena doctor' names the rule");
  } else if (look.udp_error != 0) {
    findings.fault(kPeerSubject,
                   verbena::format("{} cannot be reached: {}", host, std::strerror(look.udp_error)),
                   verbena::format("see 'ip route get {}'", host));
  } else if (look.echoes == true) {
    findings.fault(
        kPeerSubject,
        verbena::format("{} answers ICMP echoes, and nothing comes back from its UDP port 4791", host),
        "let UDP port 4791 in at both ends, also for new flows, as nothing is an answer to it; "
        "run 'sudo verbena doctor' there; on a host with rdma_rxe, 'rdma link' names the links; "
        "'tcpdump -n udp port 4791' there shows whether the requests arrive");
  } else {
    findings.fault(
        kPeerSubject,
        verbena::format("nothing comes back from {}: neither from UDP port 4791{}", host,
                        look.echoes ? " nor an ICMP echo" : ""),
        verbena::format(
            "is the host up? 'ping {}'; a firewall on the way may drop everything: 'tcpdump -n udp "
            "port 4791' at both ends shows how far requests and answers come",
            host));
  }
}

// ---- the peer answers

std::string kind_of(const PeerLook& look) {
  switch (look.kind) {
    case PeerKind::kVerbena:
      return verbena::format("Verbena {} ({})", look.info.version, look.info.description);
    case PeerKind::kPerformance:
      return "an RDMA adapter, or a Verbena that does not say its version";
    default:
      return "RoCEv2 of a kernel, such as rdma_rxe";
  }
}

void report_answer(const PeerLook& look, Findings& findings) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(look.round_trip).count();
  findings.fine(
      kPeerSubject,
      verbena::format("{} answers on UDP port 4791, so packets go both ways by {}: {}; {} us there and back",
                      look.address, look.link, kind_of(look), us));
  if (look.kind == PeerKind::kVerbena && look.info.version != VERBENA_VERSION) {
    findings.fine(kPeerSubject, verbena::format("the versions differ, which works: {} there, {} here",
                                                look.info.version, VERBENA_VERSION));
  }
}

void report_path_mtu(const PeerLook& look, Findings& findings) {
  const uint32_t theirs = look.kind == PeerKind::kVerbena ? 128u << look.info.path_mtu : look.path_mtu;
  if (!look.widest) {
    findings.unseen(
        kPathSubject,
        look.echoes ? "the host answers no ICMP echoes: which packets fit on the way is not known"
                    : "this user may not send ICMP echoes: which packets fit on the way is not known",
        look.echoes ? ""
                    : "sudo verbena doctor, or as root: sysctl -w net.ipv4.ping_group_range='0 2147483647'");
  } else if (*look.widest < look.path_mtu) {
    findings.fault(
        kPathSubject,
        verbena::format("the path MTU of {} is {}, and of packets of {} bytes none come back; {}", look.link,
                        look.path_mtu, look.path_mtu + control::kPacketOverhead,
                        *look.widest == 0 ? std::string("not even those of a path MTU of 256 do")
                                          : verbena::format("a path MTU of {} fits", *look.widest)),
        *look.widest == 0
            ? std::string("raise the MTU of the devices on the way")
            : verbena::format("give programs the smaller path MTU (perftest -m {}), or raise the MTU of each "
                              "device on the way",
                              *look.widest));
  } else {
    findings.fine(kPathSubject, verbena::format("a path MTU of {} fits on the way", *look.widest));
  }
  if (theirs != look.path_mtu) {
    findings.cost(
        kPathSubject,
        verbena::format("the path MTU here is {}, there {}: a program that takes its own for both ends fails",
                        look.path_mtu, theirs),
        verbena::format("give both network devices the same MTU, or programs the smaller (perftest -m {})",
                        std::min(theirs, look.path_mtu)));
  }
}

}  // namespace

std::optional<sockaddr_storage> find_peer(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), std::to_string(roce::kUdpPort).c_str(), &hints, &found) != 0) {
    return std::nullopt;
  }
  // Use the first address with a route.
  const addrinfo* best = found;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    sockaddr_storage address{};
    std::memcpy(&address, one->ai_addr, one->ai_addrlen);
    if (!connected_socket(address)) continue;
    best = one;
    break;
  }
  sockaddr_storage address{};
  std::memcpy(&address, best->ai_addr, best->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

PeerLook look_at(const sockaddr_storage& peer, const control::AgentStatus& agent) {
  PeerLook look;
  look.address = roce::text_of(gid_of(peer));
  look.no_wire = agent.no_wire_reason;
  const UniqueFd socket = connected_socket(peer);
  if (!socket) {
    look.route_error = errno;
    return look;
  }
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length);
  look.source = roce::text_of(gid_of(own));
  const LinkStatus* one = link_with(agent, gid_of(own));
  look.has_link = one != nullptr;
  if (one == nullptr || !look.no_wire.empty()) return look;
  look.link = one->link.name;
  look.is_up = one->link.up;
  look.path_mtu = active_mtu(one->link);
  look.is_refused = !accepts(one->link, gid_of(peer));
  if (!look.is_up || look.is_refused) return look;
  ask(*one, gid_of(peer), look);
  if (look.kind == PeerKind::kNone) look.udp_error = udp_error(peer);
  measure(peer, look);
  return look;
}

void report_peer(const PeerLook& look, Findings& findings) {
  if (!look_at_this_end(look, findings)) return;
  if (look.kind == PeerKind::kNone) return report_silence(look, findings);
  report_answer(look, findings);
  report_path_mtu(look, findings);
}

}  // namespace verbena::commands::doctor
