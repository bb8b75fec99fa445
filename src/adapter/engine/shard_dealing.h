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

// Returns the index of the shard for a thread's QPs. `loads`: the load (QPs, threads) of each running shard.
// A shard with load 0 comes first. Next is a new shard, with the index loads.size(), if fewer than `most`
// run. Else the one with the smallest load.
size_t deal(std::span<const uint32_t> loads, size_t most);

}  // namespace verbena::engine
