// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace verbena::engine {

// How many shards a process has, and which of them a thread's QPs go to. Pure.

inline constexpr size_t kMaxShards = 8;

// What VERBENA_SHARDS says, if it is a number from 1 to kMaxShards; else one for each two processors that
// the process may run on, as each shard has an engine thread beside the application's.
size_t max_shards(std::optional<std::string_view> wish, size_t processors);

// Which shard a thread gets for its QPs. `loads`: how many QPs each of those has that are running. One
// without any comes first, then one that is yet to be started, for which the answer is loads.size(), then the
// one with the fewest.
size_t deal(std::span<const uint32_t> loads, size_t most);

}  // namespace verbena::engine
