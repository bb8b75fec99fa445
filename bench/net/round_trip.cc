// SPDX-License-Identifier: Apache-2.0
// Half round trips through plain UDP sockets and through UdpPorts; both ends busy-poll.
#include <algorithm>
#include <atomic>
#include <vector>

#include <sys/socket.h>

#include "adapter/net/udp/socket_address.h"
#include "net/measure.h"

namespace verbena::bench {
namespace {

constexpr uint32_t kPayloadBytes = 64;
constexpr uint16_t kFirstPort = 47912;
constexpr uint16_t kSecondPort = 47913;

RoundTrip summary(std::vector<double>& halves) {
  std::sort(halves.begin(), halves.end());
  return {halves[halves.size() / 2], halves[halves.size() * 99 / 100]};
}

double half_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / 2;
}

UniqueFd bound_socket(const roce::Path& path, uint16_t port) {
  roce::Path reversed = path;
  std::swap(reversed.source, reversed.destination);
  const net::SocketAddress here = net::destination_of(reversed, port);
  UniqueFd fd(socket(here.generic.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (bind(fd.get(), &here.generic, here.length()) != 0) die("bind");
  return fd;
}

class Counter : public net::PacketHandler {
 public:
  void on_packet(const transport::IncomingPacket&) override { ++count; }
  uint32_t count = 0;
};

}  // namespace

RoundTrip raw_round_trip(const Ends& ends, uint32_t count) {
  std::vector<double> halves;
  std::atomic<bool> ready = false;
  const auto play = [&](const roce::Path& path, uint16_t local, uint16_t remote, bool first) {
    const UniqueFd fd = bound_socket(path, local);
    const net::SocketAddress there = net::destination_of(path, remote);
    std::byte buffer[kPayloadBytes]{};
    if (first) {
      while (!ready) continue;
    } else {
      ready = true;
    }
    for (uint32_t i = 0; i < count; ++i) {
      const auto start = Clock::now();
      if (first) sendto(fd.get(), buffer, sizeof buffer, 0, &there.generic, there.length());
      while (recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT) < 0) continue;
      if (!first) sendto(fd.get(), buffer, sizeof buffer, 0, &there.generic, there.length());
      if (first) halves.push_back(half_since(start));
    }
  };
  run_pinned(
      ends, [&] { play(ends.there, kFirstPort, kSecondPort, true); },
      [&] { play(ends.back, kSecondPort, kFirstPort, false); });
  return summary(halves);
}

RoundTrip port_round_trip(const Ends& ends, uint32_t count) {
  PortPair ports(ends);
  std::vector<double> halves;
  const auto play = [&](net::Port& port, const roce::Path& path, uint32_t peer_slot, bool first) {
    const std::vector<std::byte> bytes(kPayloadBytes);
    const ConstBytes payload[] = {bytes};
    roce::Headers headers;
    headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kSendOnly);
    headers.destination = roce::Qpn::in_slot(peer_slot, 1);
    const auto send = [&] {
      port.send({path, headers, payload, kPayloadBytes});
      port.flush();
    };
    Counter counter;
    for (uint32_t i = 0; i < count; ++i) {
      const auto start = Clock::now();
      if (first) send();
      while (counter.count == i) port.receive(counter, 1);
      if (!first) send();
      if (first) halves.push_back(half_since(start));
    }
  };
  run_pinned(
      ends, [&] { play(*ports.sender, ends.there, ports.receiver_slot, true); },
      [&] { play(*ports.receiver, ends.back, ports.sender_slot, false); });
  return summary(halves);
}

}  // namespace verbena::bench
