// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/shard_dealing.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace verbena::engine {

size_t max_shards(std::optional<std::string_view> wish, size_t processors) {
  if (wish) {
    size_t number = 0;
    const auto [end, error] = std::from_chars(wish->data(), wish->data() + wish->size(), number);
    const bool whole = error == std::errc() && end == wish->data() + wish->size();
    if (whole && number >= 1 && number <= kMaxShards) return number;
  }
  return std::clamp<size_t>(processors / 2, 1, kMaxShards);
}

size_t deal(std::span<const uint32_t> loads, size_t most) {
  const auto least = std::ranges::min_element(loads);
  const auto index = static_cast<size_t>(least - loads.begin());
  const bool all_busy = least == loads.end() || *least > 0;
  return all_busy && loads.size() < most ? loads.size() : index;
}

}  // namespace verbena::engine
