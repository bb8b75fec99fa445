// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "adapter/net/udp/udp_port.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::net::testing {

roce::Address address(const char* text);  // IPv4 or IPv6
roce::Path path(const char* source, const char* destination);

// Returns bytes that depend on their position and on the seed.
std::vector<std::byte> pattern(size_t size, uint32_t seed);

roce::Headers write_middle(uint32_t slot, uint32_t psn, uint32_t payload_bytes);
roce::Headers acknowledge(uint32_t slot, uint32_t psn);
transport::SendStatus send(Port& port, const roce::Path& path, const roce::Headers& headers,
                           ConstBytes payload);

// Encodes a packet as a UDP payload with the correct ICRC.
std::vector<std::byte> encode(const roce::Path& path, uint16_t source_port, uint16_t destination_port,
                              uint16_t identification, const roce::Headers& headers, ConstBytes payload);

// Records the packets that a port delivers.
class Collector : public PacketHandler {
 public:
  struct Received {
    roce::Headers headers;
    std::vector<std::byte> payload;
    roce::Path path;
    uint32_t udp_bytes;
    uint16_t source_port;
  };

  void on_packet(const transport::IncomingPacket& packet) override;

  // Receives until `packets` have been delivered in total. False if none arrives for some seconds.
  bool receive(Port& port, size_t packets);
  // Receives until the port has dropped `dropped` packets in total for this reason. False if that takes some
  // seconds.
  static bool receive_drops(Port& port, DropReason reason, uint64_t dropped);

  std::vector<Received> packets;
};

// Ports of one SO_REUSEPORT group, slots 0 to n-1, on a UDP port chosen by the kernel.
struct PortGroup {
  explicit PortGroup(uint32_t slots, UdpPortOptions options = {});
  Port& operator[](uint32_t slot) { return *ports[slot]; }

  uint16_t port = 0;
  std::vector<std::unique_ptr<UdpPort>> ports;
};

// A plain datagram socket that sends arbitrary bytes to a port.
class Stranger {
 public:
  Stranger(const char* source, const char* destination, uint16_t destination_port);
  void send(ConstBytes udp_payload);
  std::vector<std::byte> encode(const roce::Headers& headers, ConstBytes payload) const;

  const roce::Path path;

 private:
  uint16_t destination_port_;
  uint16_t source_port_ = 0;
  UniqueFd fd_;
};

// Waits until the descriptor has one of these poll(2) events. False after some seconds.
bool wait_for(int fd, short events);

}  // namespace verbena::net::testing
