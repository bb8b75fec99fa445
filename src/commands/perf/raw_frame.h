// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"

// The Ethernet frames of the tests for raw Ethernet: their headers, field by field and as bytes.
namespace verbena::perf {

using MacAddress = std::array<std::uint8_t, 6>;

// An address of IPv4 or IPv6. An IPv4 address is in the first four bytes.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};
  bool is_ipv6 = false;

  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

// Read and write addresses as text. read_mac() and read_ip() return nullopt for other text.
std::optional<MacAddress> read_mac(const std::string& word);
std::optional<IpAddress> read_ip(const std::string& word, bool is_ipv6);
std::string text_of(const MacAddress& address);
std::string text_of(const IpAddress& address);

// The fields of an IP header. The addresses are of the same version.
struct IpFields {
  IpAddress source{};
  IpAddress destination{};
  std::uint8_t hop_limit = 64;
  std::optional<std::uint8_t> traffic_class{};  // TOS of IPv4; nullopt: 0, and a flow rule matches any
  std::uint32_t flow_label = 0;                 // IPv6 only; 0: none, and a flow rule matches any
};

// The ports of a UDP or TCP header.
struct PortFields {
  std::uint16_t source = 0;
  std::uint16_t destination = 0;
  bool is_tcp = false;
};

// The header fields of a frame.
struct FrameFields {
  MacAddress source{};
  MacAddress destination{};
  std::optional<std::uint8_t> vlan_priority{};  // of the VLAN tag; nullopt: the frame has no VLAN tag
  // The EtherType to write; nullopt: that of the IP header. Without an IP header, the field has the length of
  // the payload instead (IEEE 802.3, 3.2.6).
  std::optional<std::uint16_t> ether_type{};
  std::optional<IpFields> ip{};
  std::optional<PortFields> ports{};  // REQUIRES: ip
};

// Returns the fields of a frame that answers a frame with `fields`. Sources and destinations are exchanged;
// all else is the same.
FrameFields reversed(const FrameFields& fields);

// Returns the number of bytes of all headers of a frame.
std::size_t header_bytes(const FrameFields& fields);

// Writes the headers into `frame`, which does not include the frame check sequence (the adapter adds it). The
// TCP or UDP checksum covers the payload. If `ether_type` is given, it replaces the type of the IP header
// after the checksums are computed. REQUIRES: the frame has room for the headers, and its payload is already
// there
void write_headers(Bytes frame, const FrameFields& fields);

}  // namespace verbena::perf
