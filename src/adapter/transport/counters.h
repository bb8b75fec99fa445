// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <tuple>

namespace verbena::congestion {
class Flow;
}

namespace verbena::transport {

// Counters of a QP. The holder of the shard's lock writes them; any thread may read them.
enum QpCounter : uint8_t {
  kSentPackets,
  kSentBytes,  // payload
  kReceivedPackets,
  kReceivedBytes,
  kRetransmittedPackets,
  kDuplicateRequests,  // received
  kOutOfSequence,      // received requests ahead of what was expected
  kSequenceNaksSent,
  kRnrNaksSent,
  kErrorNaksSent,
  kSequenceNaksReceived,
  kRnrNaksReceived,
  kErrorNaksReceived,
  kLocalAckTimeouts,
  kImpliedLosses,  // times that a response skipped earlier ones, which must have been lost
  // Received messages that UC, UD and raw QPs dropped, for example because no receive request was posted or
  // the Q_Key was wrong. Also counts datagrams that a UD QP dropped instead of sending them (HoldBudget in
  // ud.h).
  kDroppedDatagrams,
  kCompletions,                     // entries for completion queues
  kMulticastSent,                   // packets; also counted as sent and received
  kMulticastReceived,               // packets
  kSends,                           // SEND requests completed with success
  kReceives,                        // receive requests filled
  kSendErrors,                      // failed send requests; flushed ones do not count
  kReceiveErrors,                   // failed receive requests; flushed ones do not count
  kRetriesExceeded,                 // send requests that failed with IBV_WC_RETRY_EXC_ERR
  kRnrRetriesExceeded,              // send requests that failed with IBV_WC_RNR_RETRY_EXC_ERR
  kFirstMoreCounter,                // the first counter in QpMoreCounters
  kSentOctets = kFirstMoreCounter,  // from IP header to ICRC (packet_io.h)
  kReceivedOctets,
  kMarkedPackets,    // received with a switch's congestion mark (ECN)
  kNoticesSent,      // congestion notification packets (CNPs)
  kNoticesReceived,  // CNPs
  kQpCounterCount,
};
inline constexpr std::array kQpCounterNames = {"sent_packets",
                                               "sent_bytes",
                                               "received_packets",
                                               "received_bytes",
                                               "retransmitted_packets",
                                               "duplicate_requests",
                                               "out_of_sequence",
                                               "sequence_naks_sent",
                                               "rnr_naks_sent",
                                               "error_naks_sent",
                                               "sequence_naks_received",
                                               "rnr_naks_received",
                                               "error_naks_received",
                                               "local_ack_timeouts",
                                               "implied_losses",
                                               "dropped_datagrams",
                                               "completions",
                                               "multicast_sent_packets",
                                               "multicast_received_packets",
                                               "sends",
                                               "receives",
                                               "send_errors",
                                               "receive_errors",
                                               "retries_exceeded",
                                               "rnr_retries_exceeded",
                                               "sent_octets",
                                               "received_octets",
                                               "ecn_marked_packets",
                                               "cnps_sent",
                                               "cnps_handled"};
static_assert(kQpCounterNames.size() == kQpCounterCount);

using QpCounters = std::array<std::atomic<uint64_t>, kFirstMoreCounter>;
using QpMoreCounters = std::array<std::atomic<uint64_t>, 8>;  // kFirstMoreCounter and later
static_assert(kQpCounterCount - kFirstMoreCounter <= std::tuple_size_v<QpMoreCounters>);

// Adds `amount` to the counter with index `which`. REQUIRES: the caller is the only writer
template <size_t kCount>
void count(std::array<std::atomic<uint64_t>, kCount>& counters, size_t which, uint64_t amount = 1) {
  auto& counter = counters[which];
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

// The values of a completion counter (ibv_create_comp_cntr(3)). Several QPs may share one. Thread-safe.
struct CompletionCount {
  explicit CompletionCount(bool bytes) : counts_bytes(bytes) {}

  const bool counts_bytes;             // true: bytes of successful requests; false: requests
  std::atomic<uint64_t> completed{0};  // requests or bytes, as counts_bytes says
  std::atomic<uint64_t> failed{0};     // requests, flushed ones included
};

// The kinds of requests that a counter of a QP may count.
enum CountedRequest : uint8_t {
  kCountedSend,
  kCountedReceive,
  kCountedRead,
  kCountedWrite,
  kCountedRequests
};

// The counters of a QP, indexed by CountedRequest; null if that kind is not counted.
using CompletionCounts = std::array<std::shared_ptr<CompletionCount>, kCountedRequests>;

// Statistics of a QP's path to its peer, if the path may lose packets. For a UD QP, they are those of the
// path to the destination that sent the latest receiver report. The holder of the shard's lock writes them;
// any thread may read them.
enum PathNumber : uint8_t {
  kPathRoundTrip,          // ns, smoothed; 0: unknown
  kPathUsualRoundTrip,     // ns, recent RTT without a queue; 0: unknown
  kPathWindow,             // max bytes in flight; 0: nothing is known of the path
  kPathRate,               // bytes per second; 0: not paced, or unknown
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

// Sets the statistics of the path's present state from `flow` and the number of bytes in flight. If `flow` is
// null, sets them to 0, as nothing is known of the path. Never changes the counters of lost packets, marked
// packets and CNPs. Threads: the caller holds the shard's lock.
void show_path(PathNumbers& numbers, const congestion::Flow* flow, uint64_t in_flight);

}  // namespace verbena::transport
