// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace verbena::rdma_core {

// Where a ping lies, as rping's ends tell each other: 16 bytes, all numbers in network order.
struct Advertisement {
  uint64_t address;
  uint32_t key;
  uint32_t bytes;
};

constexpr size_t kAdvertisementBytes = 16;
using AdvertisementBytes = std::array<uint8_t, kAdvertisementBytes>;

AdvertisementBytes encode(const Advertisement& advertisement);

// What a message says. Nothing if it has not the length of one.
std::optional<Advertisement> decode(std::span<const uint8_t> message);

// The text of a ping that a stranger wrote: up to its zero, or all of it where there is none.
std::string_view text_of(std::span<const char> ping);

// The ping of that number: its name, then letters that go on from ping to ping, and a zero at the end.
void write_ping(std::span<char> buffer, int number);

}  // namespace verbena::rdma_core
