// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace verbena::rdma_core {

// The location of a buffer, which a client of rping sends as 16 bytes with numbers in network order.
struct Advertisement {
  uint64_t address;
  uint32_t key;
  uint32_t bytes;
};

constexpr size_t kAdvertisementBytes = 16;
using AdvertisementBytes = std::array<uint8_t, kAdvertisementBytes>;

AdvertisementBytes encode(const Advertisement& advertisement);

// Decodes a message from the peer. Returns nullopt if its length is wrong.
std::optional<Advertisement> decode(std::span<const uint8_t> message);

// Returns the text of a received ping up to its zero byte, or all bytes if there is none.
std::string_view text_of(std::span<const char> ping);

// Fills the buffer with the ping of this number: "rdma-ping-NUMBER: ", then letters that begin one further
// with each ping. The last byte is zero.
void write_ping(std::span<char> buffer, int number);

}  // namespace verbena::rdma_core
