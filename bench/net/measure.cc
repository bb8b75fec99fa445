// SPDX-License-Identifier: Apache-2.0
#include "net/measure.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>

#include "adapter/net/udp/socket_address.h"

namespace verbena::bench {
namespace {

roce::Address address(const std::string& text) {
  uint8_t ipv4[4];
  if (inet_pton(AF_INET, text.c_str(), ipv4) == 1) return roce::Address::from_ipv4(ipv4);
  roce::Address result;
  errno = EINVAL;
  if (inet_pton(AF_INET6, text.c_str(), result.bytes.data()) != 1) die("address " + text);
  return result;
}

void pin(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu % std::thread::hardware_concurrency(), &set);
  sched_setaffinity(0, sizeof set, &set);
}

UniqueFd receive_socket(uint16_t port) {
  Result<UniqueFd> fd = net::open_receive_socket(port);
  if (!fd) die("open_receive_socket");
  return std::move(*fd);
}

std::unique_ptr<net::UdpPort> make_port(UniqueFd fd, uint32_t slot, uint16_t udp_port) {
  net::UdpPortOptions options;
  options.slot = slot;
  options.port = udp_port;
  auto port = net::UdpPort::create(std::move(fd), options);
  if (!port) die("UdpPort::create");
  (*port)->want_ip_details(false);  // as in a shard without UD QPs
  return std::move(*port);
}

}  // namespace

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "wire_blaster: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

Ends Ends::between(const std::string& sender, const std::string& receiver) {
  Ends ends;
  ends.there.source = ends.back.destination = address(sender);
  ends.there.destination = ends.back.source = address(receiver);
  return ends;
}

Ends Ends::loopback(bool ipv6) {
  return ipv6 ? between("::1", "::1") : between("127.0.0.1", "127.0.0.1");
}

Ends Ends::veth(bool ipv6, int mtu) {
  Ends ends = ipv6 ? between("fd47:91::1", "fd47:91::2") : between("10.47.91.1", "10.47.91.2");
  ends.hosts = std::make_unique<net::testing::TwoHosts>(mtu);
  return ends;
}

void run_pinned(const Ends& ends, const std::function<void()>& sender,
                const std::function<void()>& receiver) {
  const auto run = [&](unsigned cpu, const net::testing::NetNamespace* where,
                       const std::function<void()>& work) {
    pin(cpu);
    std::optional<net::testing::InNamespace> inside;
    if (where != nullptr) inside.emplace(*where);
    work();
  };
  std::thread other(run, 1, ends.hosts ? &ends.hosts->b : nullptr, std::cref(receiver));
  std::thread(run, 0, ends.hosts ? &ends.hosts->a : nullptr, std::cref(sender)).join();
  other.join();
}

PortPair::PortPair(const Ends& ends) {
  if (ends.hosts) {
    {
      const net::testing::InNamespace here(ends.hosts->a);
      sender = make_port(receive_socket(roce::kUdpPort), 0, roce::kUdpPort);
    }
    const net::testing::InNamespace there(ends.hosts->b);
    receiver = make_port(receive_socket(roce::kUdpPort), 0, roce::kUdpPort);
    return;
  }
  UniqueFd first = receive_socket(0);
  net::SocketAddress local{};
  socklen_t length = sizeof local;
  getsockname(first.get(), &local.generic, &length);
  const uint16_t port = net::port_of(local);
  UniqueFd second = receive_socket(port);
  if (!net::attach_slot_steering(first.get(), 2)) die("attach_slot_steering");
  receiver_slot = 1;
  sender = make_port(std::move(first), sender_slot, port);
  receiver = make_port(std::move(second), receiver_slot, port);
}

}  // namespace verbena::bench
