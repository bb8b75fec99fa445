// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace verbena::congestion {
class Flow;
}

namespace verbena::transport {

// What a connected QP knows of its path to the peer, where packets may be lost. One writer (the shard), any
// readers.
enum PathNumber : uint8_t {
  kPathRoundTrip,          // ns, smoothed; 0: not known
  kPathUsualRoundTrip,     // ns, of late, without a queue
  kPathWindow,             // bytes that may be in flight; 0: there is no such path
  kPathRate,               // bytes a second at which they leave; 0: as fast as they can
  kPathInFlight,           // bytes
  kPathLostPackets,        // taken for lost one by one, and sent again
  kPathMarkedPackets,      // received with the mark of a switch that fills up
  kPathCongestionNotices,  // received: so often the peer has told of marked packets
  kPathNumberCount,
};

inline constexpr std::array<const char*, kPathNumberCount> kPathNumberNames = {
    "round_trip_ns",   "usual_round_trip_ns", "window_bytes",   "rate_bytes_per_second",
    "in_flight_bytes", "lost_packets",        "marked_packets", "congestion_notices"};

using PathNumbers = std::array<std::atomic<uint64_t>, kPathNumberCount>;

// What is known of the path; nullptr: nothing. For the shard.
void show_path(PathNumbers& numbers, const congestion::Flow* flow, uint64_t in_flight);

}  // namespace verbena::transport
