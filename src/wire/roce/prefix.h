// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "wire/roce/path.h"

namespace verbena::roce {

// An IP network as routes and firewalls name it: 192.0.2.0/24, fd00::/8. An IPv4 network contains no IPv6
// addresses, and an IPv6 network no IPv4 addresses.
struct Prefix {
  static constexpr uint8_t kIpv4Bits = 96;  // bits of the mapped form before an IPv4 address

  Address network;   // all bits after the first `bits` are zero
  uint8_t bits = 0;  // 96 to 128 for an IPv4 network

  bool contains(const Address& address) const;
  friend bool operator==(const Prefix&, const Prefix&) = default;
};

// Returns the address with all bits after the first `bits` cleared. For an IPv4 address, `bits` counts the 96
// bits in front of it, too (kIpv4Bits). REQUIRES: bits <= 128
Address first_bits(const Address& address, uint8_t bits);

// Parses a network, such as "192.0.2.0/24"; an address without a slash is a network of one address. Bits of
// the address beyond the prefix length are cleared, as firewalls do. Returns nullopt if the text is invalid.
std::optional<Prefix> parse_prefix(std::string_view text);
std::string text_of(const Prefix& prefix);
std::string text_of(const Address& address);  // an IPv4 address in dotted form

}  // namespace verbena::roce
