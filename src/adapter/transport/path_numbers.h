// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace verbena::congestion {
class Flow;
}

namespace verbena::transport {

// Statistics of a connected QP's path to its peer, where packets may be lost. The holder of the shard's lock
// writes them; any thread may read them.
enum PathNumber : uint8_t {
  kPathRoundTrip,          // ns, smoothed; 0: unknown
  kPathUsualRoundTrip,     // ns, recent RTT without a queue
  kPathWindow,             // max bytes in flight; 0: no such path
  kPathRate,               // bytes per second; 0: not paced
  kPathInFlight,           // bytes
  kPathLostPackets,        // packets detected as lost individually, and sent again
  kPathMarkedPackets,      // received with a switch's congestion mark
  kPathCongestionNotices,  // CNPs received from the peer
  kPathNumberCount,
};

inline constexpr std::array<const char*, kPathNumberCount> kPathNumberNames = {
    "round_trip_ns",   "usual_round_trip_ns", "window_bytes",   "rate_bytes_per_second",
    "in_flight_bytes", "lost_packets",        "marked_packets", "congestion_notices"};

using PathNumbers = std::array<std::atomic<uint64_t>, kPathNumberCount>;

// Updates the statistics from `flow`; if `flow` is null, nothing is known of the path. For the shard's lock
// holder.
void show_path(PathNumbers& numbers, const congestion::Flow* flow, uint64_t in_flight);

}  // namespace verbena::transport
