// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "wire/roce/path.h"

namespace verbena::roce {

// The addresses of a network, as routes and firewalls name them: 192.0.2.0/24, fd00::/8. An IPv4 address is
// in no network of IPv6, and the other way round.
struct Prefix {
  static constexpr uint8_t kIpv4Bits = 96;  // what is before an IPv4 address in its mapped form

  Address network;   // zeros behind the first `bits`
  uint8_t bits = 0;  // 96 to 128 where the network is one of IPv4

  bool contains(const Address& address) const;
  friend bool operator==(const Prefix&, const Prefix&) = default;
};

// All zeros but the first `bits` of an address. REQUIRES: bits <= 128
Address first_bits(const Address& address, uint8_t bits);

// An address alone is the network of that address. What is not the network's in what stands before the slash
// is left out, as firewalls do.
std::optional<Prefix> parse_prefix(std::string_view text);
std::string text_of(const Prefix& prefix);
std::string text_of(const Address& address);  // one of IPv4 in its own form

}  // namespace verbena::roce
