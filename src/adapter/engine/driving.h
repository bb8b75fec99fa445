// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"

// The figures by which an application and its engine thread take turns at a shard.
namespace verbena::engine {

// Packets received from one source in one round.
inline constexpr uint32_t kReceiveBudget = 256;
// Packets taken before a queue pair or a connection ends: more than a long message has. A peer that goes on
// sending does not hold the end up.
inline constexpr uint32_t kSettleBudget = 16 * kReceiveBudget;
// Rounds of one engine visit before others get the lock.
inline constexpr int kEngineRounds = 16;

// An application that has attended to its shard for so long polls: packets need not wake anybody. Doubled
// each time the guess was wrong (it went to wait on its memory, and packets waited for somebody to look),
// halved after so many looks in a row that found it right.
inline constexpr Duration kTakeOverAfter = std::chrono::microseconds(100);
inline constexpr Duration kMaxTakeOverAfter = std::chrono::microseconds(12'800);
inline constexpr uint32_t kSteadyLooks = 16;
// Longer than an application that polls stays away between two verbs, also when an engine thread, its own or
// its peer's, has taken its processor for a moment.
inline constexpr Duration kLongestAbsence = std::chrono::microseconds(50);
inline constexpr Duration kWorkPerPacket = std::chrono::microseconds(1);
inline constexpr Duration kLongestYield = std::chrono::milliseconds(1);
// How often the engine thread looks whether the application still polls: rarer costs latency once, more often
// costs a core. Right after the application took over it looks after kFirstLook, then after twice that, up to
// kLongestLookInterval: what comes when the application stops waits for no longer than it had polled before.
// (And sooner than a peer would probe. Linux 6.18 was measured to leave a processor to one session for
// seconds, if one of its threads spins and another wakes up every millisecond or two; not from 3.5 ms on.)
inline constexpr Duration kFirstLook = std::chrono::microseconds(50);
inline constexpr Duration kLongestLookInterval = std::chrono::milliseconds(4);
// The same from kFirstLook on, but up to here: when it finds the lock taken, nobody at the bell, or has a
// source that must be asked.
inline constexpr Duration kLookInterval = std::chrono::milliseconds(1);
// Timers may be this late while the engine thread sleeps: the application would have to wake it for each
// request otherwise.
inline constexpr Duration kTimerSlack = std::chrono::milliseconds(8);
// An application that goes on posting small messages, each so soon after the one before, may have them wait
// for each other, as long as it goes on. (What waits when it stops goes with its next verb, or when the
// engine thread looks.)
inline constexpr Duration kGathersFor = std::chrono::microseconds(3);
// How soon the engine thread tries again when the port is full. A descriptor may tell it earlier, or not at
// all: a UDP socket counts as writable only while half of its buffer is free. Packets to a host that answers
// no ARP can occupy the other half for seconds.
inline constexpr Duration kFullPortInterval = std::chrono::milliseconds(1);

}  // namespace verbena::engine
