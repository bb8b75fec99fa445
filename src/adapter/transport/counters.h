// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <tuple>

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
  kImpliedLosses,  // responses that skipped earlier ones, which must have been lost
  // By UC, UD and raw QPs: no receive request, a bad message, a wrong Q_Key; or not sent (hold_budget.h).
  kDroppedDatagrams,
  kCompletions,
  kMulticastSent,  // packets; also counted as sent and received
  kMulticastReceived,
  kSends,     // SEND requests completed
  kReceives,  // receive requests filled
  kSendErrors,
  kReceiveErrors,  // failed receive requests; flushed ones do not count
  kRetriesExceeded,
  kRnrRetriesExceeded,
  kFirstMoreCounter,
  kSentOctets = kFirstMoreCounter,  // from IP header to ICRC (octets.h)
  kReceivedOctets,
  kMarkedPackets,    // received with a switch's congestion mark (ECN)
  kNoticesSent,      // congestion notification packets (CNPs)
  kNoticesReceived,  // CNPs
  kQpCounterCount,
};
const char* qp_counter_name(QpCounter counter);

using QpCounters = std::array<std::atomic<uint64_t>, kFirstMoreCounter>;
using QpMoreCounters = std::array<std::atomic<uint64_t>, 8>;  // kFirstMoreCounter and later
static_assert(kQpCounterCount - kFirstMoreCounter <= std::tuple_size_v<QpMoreCounters>);

// Adds `amount` to the counter with index `which`. REQUIRES: the caller is the only writer
template <size_t kCount>
void count(std::array<std::atomic<uint64_t>, kCount>& counters, size_t which, uint64_t amount = 1) {
  auto& counter = counters[which];
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace verbena::transport
