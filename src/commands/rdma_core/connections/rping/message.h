// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace verbena::rdma_core {

// The location of a buffer, as rping's ends exchange it: 16 bytes, all numbers in network order.
struct Advertisement {
  uint64_t address;
  uint32_t key;
  uint32_t bytes;
};

constexpr size_t kAdvertisementBytes = 16;
using AdvertisementBytes = std::array<uint8_t, kAdvertisementBytes>;

AdvertisementBytes encode(const Advertisement& advertisement);

// Decodes a message; nullopt if its length is wrong.
std::optional<Advertisement> decode(std::span<const uint8_t> message);

// Returns the text of a received ping up to its zero byte, or all bytes if there is none.
std::string_view text_of(std::span<const char> ping);

// Writes the ping with this number: its name, then letters whose start advances with each ping, and a zero
// byte.
void write_ping(std::span<char> buffer, int number);

}  // namespace verbena::rdma_core
