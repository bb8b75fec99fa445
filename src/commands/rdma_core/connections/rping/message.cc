// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/rping/message.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <endian.h>

namespace verbena::rdma_core {
namespace {

struct Wire {
  uint64_t address;
  uint32_t key;
  uint32_t bytes;
};
static_assert(sizeof(Wire) == kAdvertisementBytes);

constexpr char kFirst = 'A';
constexpr char kLast = 'z';
constexpr int kLetters = kLast - kFirst + 1;

}  // namespace

AdvertisementBytes encode(const Advertisement& advertisement) {
  const Wire wire = {htobe64(advertisement.address), htobe32(advertisement.key),
                     htobe32(advertisement.bytes)};
  AdvertisementBytes message;
  std::memcpy(message.data(), &wire, sizeof wire);
  return message;
}

std::optional<Advertisement> decode(std::span<const uint8_t> message) {
  if (message.size() != kAdvertisementBytes) return std::nullopt;
  Wire wire;
  std::memcpy(&wire, message.data(), sizeof wire);
  return Advertisement{be64toh(wire.address), be32toh(wire.key), be32toh(wire.bytes)};
}

std::string_view text_of(std::span<const char> ping) {
  return {ping.begin(), std::find(ping.begin(), ping.end(), '\0')};
}

void write_ping(std::span<char> buffer, int number) {
  if (buffer.empty()) return;
  const int named = std::snprintf(buffer.data(), buffer.size(), "rdma-ping-%d: ", number);
  int letter = number % kLetters;
  for (size_t i = static_cast<size_t>(std::max(named, 0)); i < buffer.size(); ++i) {
    buffer[i] = static_cast<char>(kFirst + letter);
    letter = (letter + 1) % kLetters;
  }
  buffer.back() = '\0';
}

}  // namespace verbena::rdma_core
