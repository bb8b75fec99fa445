// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/prefix.h"

#include <charconv>
#include <system_error>

#include <arpa/inet.h>

namespace verbena::roce {
namespace {

std::optional<Address> parse_address(const std::string& text) {
  uint8_t ipv4[4];
  if (inet_pton(AF_INET, text.c_str(), ipv4) == 1) return Address::from_ipv4(ipv4);
  Address address;
  if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

std::optional<uint8_t> parse_bits(std::string_view text, uint8_t most) {
  uint8_t bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits);
  if (error != std::errc() || end != text.data() + text.size() || bits > most) return std::nullopt;
  return bits;
}

}  // namespace

Address first_bits(const Address& address, uint8_t bits) {
  Address first;
  for (size_t i = 0; i < first.bytes.size(); ++i) {
    const int wanted = bits - static_cast<int>(8 * i);
    const int mask = wanted >= 8 ? 0xff : wanted <= 0 ? 0 : 0xff00 >> wanted;
    first.bytes[i] = static_cast<uint8_t>(address.bytes[i] & mask);
  }
  return first;
}

bool Prefix::contains(const Address& address) const {
  return address.is_ipv4() == network.is_ipv4() && first_bits(address, bits) == network;
}

std::optional<Prefix> parse_prefix(std::string_view text) {
  const size_t slash = text.find('/');
  const auto address = parse_address(std::string(text.substr(0, slash)));
  if (!address) return std::nullopt;
  // "::ffff:192.0.2.0/120" is an IPv4 network in IPv6 notation.
  const bool mapped = address->is_ipv4() && text.substr(0, slash).find(':') != std::string_view::npos;
  const uint8_t before = address->is_ipv4() && !mapped ? Prefix::kIpv4Bits : 0;
  uint8_t bits = 128;
  if (slash != std::string_view::npos) {
    const auto parsed = parse_bits(text.substr(slash + 1), static_cast<uint8_t>(128 - before));
    if (!parsed || (mapped && *parsed < Prefix::kIpv4Bits)) return std::nullopt;
    bits = static_cast<uint8_t>(before + *parsed);
  }
  return Prefix{first_bits(*address, bits), bits};
}

std::string text_of(const Prefix& prefix) {
  const int before = prefix.network.is_ipv4() ? Prefix::kIpv4Bits : 0;
  return text_of(prefix.network) + '/' + std::to_string(prefix.bits - before);
}

std::string text_of(const Address& address) {
  char text[INET6_ADDRSTRLEN];
  const bool ipv4 = address.is_ipv4();
  const void* bytes = ipv4 ? static_cast<const void*>(address.ipv4()) : address.bytes.data();
  return inet_ntop(ipv4 ? AF_INET : AF_INET6, bytes, text, sizeof text) != nullptr ? text : "?";
}

}  // namespace verbena::roce
