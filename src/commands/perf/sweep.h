// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace verbena::perf {

// The values over which --sweep runs a test: all combinations. A list is empty if its value does not vary.
struct Sweep {
  // Parses "sizes,qps,depths": each may have values behind it, "sizes=64-1M" for doubled values from the
  // first to the last, or "qps=1/3/8". Throws std::invalid_argument.
  static Sweep parse(std::string_view text);

  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> queue_pairs;
  std::vector<std::uint64_t> depths;  // of the send queue
  bool has_all_sizes = false;  // the sizes are the default ones: those above a datagram's limit are left out
};

}  // namespace verbena::perf
