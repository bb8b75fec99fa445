// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace verbena::perf {

inline constexpr long long kLargestMessage = 0xffffffffU / 2;

// Reads a number of bytes with an optional K (1024) or M (1024 * 1024) behind it. Returns nullopt for other
// words, and for numbers that are not from 1 to kLargestMessage.
std::optional<std::uint64_t> read_size(std::string text);

// Returns a number of bytes in the form that read_size() reads: 64, 4K, 1M.
std::string size_text(std::uint64_t bytes);

}  // namespace verbena::perf
