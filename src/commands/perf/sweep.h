// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace verbena::perf {

// The values for which --sweep runs tests: one test for each combination of them. The list of a setting that
// does not vary is empty.
struct Sweep {
  // Parses a list such as "sizes,qps,depths". A name alone stands for its default values. "sizes=64-1M"
  // stands for doubled values from the first to the last, and "qps=1/3/8" for these three. Throws
  // std::invalid_argument.
  static Sweep parse(std::string_view text);

  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> queue_pairs;
  std::vector<std::uint64_t> depths;  // of the send queue
  bool has_all_sizes = false;  // the sizes are the default ones: those above a datagram's limit are left out
};

}  // namespace verbena::perf
