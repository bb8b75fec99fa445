// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace verbena::roce {

// An IP address as a GID (IBTA annex A17): an IPv6 address, or an IPv4 address mapped into one
// (::ffff:a.b.c.d).
struct Address {
  std::array<uint8_t, 16> bytes{};

  static Address from_ipv4(const uint8_t ipv4[4]) {
    Address a;
    a.bytes[10] = a.bytes[11] = 0xff;
    std::memcpy(&a.bytes[12], ipv4, 4);
    return a;
  }
  bool is_ipv4() const {
    static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), kMapped, sizeof kMapped) == 0;
  }
  bool is_zero() const { return *this == Address{}; }
  bool is_multicast() const { return is_ipv4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff; }
  bool is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }
  const uint8_t* ipv4() const { return &bytes[12]; }

  // Compares the addresses as two 64-bit words each. This function runs for every packet, and compilers turn
  // a comparison of the `bytes` arrays into a function call.
  friend bool operator==(const Address& a, const Address& b) {
    using Words = std::array<uint64_t, 2>;
    const auto x = std::bit_cast<Words>(a);
    const auto y = std::bit_cast<Words>(b);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
  }
};

// ECN bits of IP's traffic class (RFC 3168). A congested switch sets kEcnMarked in packets that are sent as
// kEcnCapable.
constexpr uint8_t kEcnMask = 3;
constexpr uint8_t kEcnMarked = 3;
constexpr uint8_t kEcnCapable = 2;  // ECT(0)

// The path of a packet: an address vector resolved to the fields of IP.
struct Path {
  Address source;
  Address destination;
  uint32_t interface_index = 0;  // the outgoing or incoming netdev; 0 if the routing table decides
  uint32_t flow_label = 0;       // IPv6, 20 bits
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;

  friend bool operator==(const Path&, const Path&) = default;
};

}  // namespace verbena::roce
