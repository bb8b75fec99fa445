// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/pingpong/address.h"

#include <array>
#include <charconv>
#include <span>
#include <system_error>

#include "base/format.h"

namespace verbena::rdma_core {
namespace {

constexpr size_t kLidDigits = 4;
constexpr size_t kNumberDigits = 6;
constexpr size_t kGidDigits = 32;

std::optional<uint32_t> hexadecimal(std::string_view digits) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string gid_digits(const ibv_gid& gid) {
  std::string digits;
  for (const uint8_t byte : gid.raw) digits += verbena::format("{:02x}", byte);
  return digits;
}

bool read_gid(std::string_view digits, ibv_gid& gid) {
  for (size_t i = 0; i < sizeof gid.raw; ++i) {
    const auto byte = hexadecimal(digits.substr(2 * i, 2));
    if (!byte) return false;
    gid.raw[i] = static_cast<uint8_t>(*byte);
  }
  return true;
}

// Parses a LID, further numbers and a GID. A colon follows each number, a zero byte the GID.
bool read_all(std::string_view message, std::span<uint32_t* const> numbers, ibv_gid& gid) {
  size_t digits = kLidDigits;
  for (uint32_t* number : numbers) {
    const auto value = hexadecimal(message.substr(0, digits));
    if (!value || message[digits] != ':') return false;
    *number = *value;
    message.remove_prefix(digits + 1);
    digits = kNumberDigits;
  }
  return message[kGidDigits] == '\0' && read_gid(message.substr(0, kGidDigits), gid);
}

}  // namespace

std::string Address::encoded() const {
  return verbena::format("{:04x}:{:06x}:{:06x}:{}", lid, qpn, psn, gid_digits(gid)) + '\0';
}

std::optional<Address> Address::decode(std::string_view message) {
  Address address;
  const std::array numbers = {&address.lid, &address.qpn, &address.psn};
  if (message.size() != kLength || !read_all(message, numbers, address.gid)) return std::nullopt;
  return address;
}

std::string XrcAddress::encoded() const {
  return verbena::format("{:04x}:{:06x}:{:06x}:{:06x}:{:06x}:{}", lid, receiving_qpn, sending_qpn, psn, srqn,
                         gid_digits(gid)) +
         '\0';
}

std::optional<XrcAddress> XrcAddress::decode(std::string_view message) {
  XrcAddress address;
  const std::array numbers = {&address.lid, &address.receiving_qpn, &address.sending_qpn, &address.psn,
                              &address.srqn};
  if (message.size() != kLength || !read_all(message, numbers, address.gid)) return std::nullopt;
  return address;
}

}  // namespace verbena::rdma_core
