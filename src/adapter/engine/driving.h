// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"

// The figures by which an application and its engine thread take turns at a shard.
namespace verbena::engine {

// The maximum number of packets received from one source in one round.
inline constexpr uint32_t kReceiveBudget = 256;
// The maximum number of packets that Shard::settle() receives before a queue pair or a connection ends. A
// long message has fewer packets. The limit keeps a peer that goes on sending from delaying the end.
inline constexpr uint32_t kSettleBudget = 16 * kReceiveBudget;
// The maximum number of rounds of the engine thread before other threads get the lock.
inline constexpr int kEngineRounds = 16;

// An application that has been active (Attendance) for this long is taken to poll: packets then need not wake
// the engine thread. This guess is wrong if the application then stops calling verbs, for example to poll its
// own memory. Packets then wait until the engine thread looks. Each wrong guess doubles the time. It is
// halved after kSteadyLooks checks in a row that found the application active.
inline constexpr Duration kTakeOverAfter = std::chrono::microseconds(100);
inline constexpr Duration kMaxTakeOverAfter = std::chrono::microseconds(12'800);
inline constexpr uint32_t kSteadyLooks = 16;
// An upper bound for the time that a polling application is away between two verbs, even if an engine thread
// (its own or its peer's) has used its processor meanwhile.
inline constexpr Duration kLongestAbsence = std::chrono::microseconds(50);
inline constexpr Duration kWorkPerPacket = std::chrono::microseconds(1);
inline constexpr Duration kLongestYield = std::chrono::milliseconds(1);
// How often the engine thread checks whether the application still polls. A longer interval costs latency
// once; a shorter one costs processor time. After the application took over, the first check comes after
// kFirstLook. The interval doubles each time, up to kLongestLookInterval. So a packet that comes when the
// application stops waits no longer than the application had polled before. (The limit is shorter than a
// peer's probe interval. Linux 6.18 was measured to leave a processor to one session for seconds, if one of
// its threads spins and another wakes up every millisecond or two. From 3.5 ms on it did not.)
inline constexpr Duration kFirstLook = std::chrono::microseconds(50);
inline constexpr Duration kLongestLookInterval = std::chrono::milliseconds(4);
// The maximum of three other intervals of the engine thread that begin with kFirstLook and double: between
// tries while the shard's lock is taken; between checks while no thread listens for wake-ups (the bell); and
// between polls of a source without a descriptor.
inline constexpr Duration kLookInterval = std::chrono::milliseconds(1);
// How late timers may be while the engine thread sleeps. Without this slack the application would have to
// wake it for each request.
inline constexpr Duration kTimerSlack = std::chrono::milliseconds(8);
// While an application posts small messages at intervals no longer than this, they may be held for this long
// to be sent together. When it stops posting, they are sent with its next verb, or when the engine thread
// looks.
inline constexpr Duration kGathersFor = std::chrono::microseconds(3);
// How soon the engine thread tries again when the port is full. A descriptor may report room earlier, or not
// at all: a UDP socket counts as writable only while half of its buffer is free. Packets to a host that
// answers no ARP can occupy the other half for seconds.
inline constexpr Duration kFullPortInterval = std::chrono::milliseconds(1);

}  // namespace verbena::engine
