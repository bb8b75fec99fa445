// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <tuple>

namespace verbena::transport {

// What is counted of each QP. One writer (the shard), any readers.
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
  kImpliedLosses,     // responses that showed by what they skipped that others were lost
  kDroppedDatagrams,  // UD: no receive request, or a wrong Q_Key
  kCompletions,
  kMulticastSent,  // packets; they are among those sent and received
  kMulticastReceived,
  kSends,     // SEND requests done
  kReceives,  // receive requests filled
  kSendErrors,
  kReceiveErrors,  // requests that failed by themselves, not by being flushed
  kRetriesExceeded,
  kRnrRetriesExceeded,
  kFirstMoreCounter,
  kSentOctets = kFirstMoreCounter,  // between packet delimiters: IP header to ICRC (octets.h)
  kReceivedOctets,
  kMarkedPackets,    // received with the mark of a switch that fills up (ECN)
  kNoticesSent,      // congestion notification packets
  kNoticesReceived,  // and obeyed
  kQpCounterCount,
};
const char* qp_counter_name(QpCounter counter);

using QpCounters = std::array<std::atomic<uint64_t>, kFirstMoreCounter>;
using QpMoreCounters = std::array<std::atomic<uint64_t>, 8>;  // from kFirstMoreCounter on
static_assert(kQpCounterCount - kFirstMoreCounter <= std::tuple_size_v<QpMoreCounters>);

// REQUIRES: the caller is the one writer
template <size_t kCount>
void count(std::array<std::atomic<uint64_t>, kCount>& counters, size_t which, uint64_t amount = 1) {
  auto& counter = counters[which];
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace verbena::transport
