// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"

// The figures by which an application and its engine thread take turns at a shard.
namespace verbena::engine {

// Packets received from one source in one round.
inline constexpr uint32_t kReceiveBudget = 256;
// Rounds of one engine visit before others get the lock.
inline constexpr int kEngineRounds = 16;

// An application that polls this often without the engine thread having received anything in between is
// polling: packets need not wake anybody. Doubled each time the guess was wrong (it had polled a little and
// then waited on its memory).
inline constexpr uint32_t kPollsToTakeOver = 16;
inline constexpr uint32_t kMostPollsToTakeOver = 1u << 14;
inline constexpr uint32_t kSteadyLooks = 256;
// How often the engine thread looks whether the application still polls: rarer costs latency once, more often
// costs a core.
// Right after the application took over it looks sooner, and then ever rarer.
inline constexpr Duration kFirstLook = std::chrono::microseconds(50);
inline constexpr Duration kLookInterval = std::chrono::milliseconds(1);
// Timers may be this late while the engine thread sleeps: the application would have to wake it for each
// request otherwise.
inline constexpr Duration kTimerSlack = std::chrono::milliseconds(8);
// How soon the engine thread tries again when the port is full and cannot say when it will have room.
inline constexpr Duration kFullPortInterval = std::chrono::milliseconds(1);

}  // namespace verbena::engine
