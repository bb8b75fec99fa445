// SPDX-License-Identifier: Apache-2.0
// The maximum throughput of the kernel's UDP: super-packets are sent from one buffer and received into one,
// and nobody reads the bytes.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

#include <netinet/udp.h>
#include <sys/socket.h>

#include "adapter/net/udp/socket_address.h"
#include "net/measure.h"

namespace verbena::bench {
namespace {

constexpr auto kLost = std::chrono::milliseconds(20);

// Opens a socket bound to one end and connected to the other.
UniqueFd open_end(const roce::Path& path, uint16_t local, uint16_t remote) {
  roce::Path reversed = path;
  std::swap(reversed.source, reversed.destination);
  const net::SocketAddress here = net::destination_of(reversed, local);
  const net::SocketAddress there = net::destination_of(path, remote);
  UniqueFd fd(socket(here.generic.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int bytes = 4 << 20;
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (setsockopt(fd.get(), IPPROTO_UDP, UDP_GRO, &on, sizeof on) != 0) die("UDP_GRO");
  if (bind(fd.get(), &here.generic, here.length()) != 0) die("bind");
  if (connect(fd.get(), &there.generic, there.length()) != 0) die("connect");
  return fd;
}

constexpr uint16_t kSenderPort = 47910;
constexpr uint16_t kReceiverPort = 47911;

// Reports the number of received bytes to the sender in small datagrams, until an empty datagram arrives.
void receive_and_acknowledge(int fd) {
  std::vector<std::byte> buffer(65536);
  uint64_t received = 0;
  for (;;) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) return;
    if (got < 0) continue;
    received += static_cast<uint64_t>(got);
    send(fd, &received, sizeof received, MSG_DONTWAIT);
  }
}

}  // namespace

Rate raw_blast(const Ends& ends, const Load& load) {
  Rate rate;
  std::atomic<bool> ready = false;
  const uint32_t bytes_per_send = load.packets_per_send() * load.packet_bytes;
  const uint32_t window = load.packets_in_flight() * load.packet_bytes;
  const auto sender = [&] {
    const UniqueFd fd = open_end(ends.there, kSenderPort, kReceiverPort);
    const int segment = static_cast<int>(load.packet_bytes);
    if (setsockopt(fd.get(), IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0) die("UDP_SEGMENT");
    while (!ready) continue;
    const std::vector<std::byte> buffer(bytes_per_send, std::byte{0x5a});
    uint64_t sent = 0, acknowledged = 0, lost = 0;
    const auto start = Clock::now();
    auto progress = start;
    for (;;) {
      const auto now = Clock::now();
      if (now - start >= load.duration) break;
      uint64_t answer;
      while (recv(fd.get(), &answer, sizeof answer, MSG_DONTWAIT) == sizeof answer) {
        acknowledged = answer + lost;
        progress = now;
      }
      if (now - progress > kLost) {
        lost += sent - acknowledged;
        acknowledged = sent;
        progress = now;
      }
      while (sent - acknowledged + bytes_per_send <= window) {
        if (send(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) < 0) break;
        sent += bytes_per_send;
      }
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const auto arrived = static_cast<double>(acknowledged - lost);
    rate.gigabits_per_second = arrived * 8 / seconds / 1e9;
    rate.packets_per_second = arrived / load.packet_bytes / seconds;
    rate.lost = lost / load.packet_bytes;
    const int none = 0;
    setsockopt(fd.get(), IPPROTO_UDP, UDP_SEGMENT, &none, sizeof none);
    send(fd.get(), nullptr, 0, 0);
  };
  const auto receiver = [&] {
    const UniqueFd fd = open_end(ends.back, kReceiverPort, kSenderPort);
    ready = true;
    receive_and_acknowledge(fd.get());
  };
  run_pinned(ends, sender, receiver);
  return rate;
}

}  // namespace verbena::bench
