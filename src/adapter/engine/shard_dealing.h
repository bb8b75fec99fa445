// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace verbena::engine {

// The number of shards of a process, and the choice of the shard for a thread's QPs. Pure.

inline constexpr size_t kMaxShards = 8;

// Returns the maximum number of shards: `wish` (VERBENA_SHARDS) if it is a number from 1 to kMaxShards.
// Otherwise it is one for each two processors that the process may use, at least 1 and at most kMaxShards:
// each shard has an engine thread besides the application's thread.
size_t max_shards(std::optional<std::string_view> wish, size_t processors);

// Returns the index of the shard that a thread's QPs should use. `loads`: the load (QPs, threads) of each
// running shard. Prefers a shard with load 0. If there is none and fewer than `most` shards run, returns
// loads.size(), for a new shard. Otherwise returns the shard with the smallest load.
size_t deal(std::span<const uint32_t> loads, size_t most);

}  // namespace verbena::engine
