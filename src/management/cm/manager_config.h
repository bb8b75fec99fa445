// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace verbena::cm {

// Returns the time for a 5-bit exponent n in a message: 4.096 us * 2^n, but at least a millisecond. Otherwise
// a peer could cause a storm of retransmissions.
constexpr Duration time_of(uint8_t exponent) {
  return std::max<Duration>(Duration(4096) * (int64_t{1} << (exponent & 31)), std::chrono::milliseconds(1));
}

// Returns the exponent of the local ACK timeout for a path: twice the packet life time plus the responder's
// delay (IBTA volume 1, 12.7.34). Both arguments are exponents. Rounded as in the kernel: the larger exponent
// of the two terms, plus one if the other is at most one less.
constexpr uint8_t ack_timeout(uint8_t ack_delay, uint8_t packet_life_time) {
  const unsigned life = packet_life_time + 1u;
  const unsigned timeout = life >= ack_delay ? life + (ack_delay + 1u >= life ? 1 : 0)
                                             : ack_delay + (life + 1u >= ack_delay ? 1 : 0);
  return static_cast<uint8_t>(std::min(timeout, 31u));
}

struct ManagerConfig {
  // The maximum number of passive connections and resolutions that are unanswered by the owner, or whose
  // answer the peer has not acknowledged. Further REQs are dropped, so that their senders retry. base/quota.h
  // shares the number among accounts.
  size_t max_half_open = 8192;
  uint32_t own_account = 0;  // this account may use the reserve and all of max_half_open (base/quota.h)
  // How long a request waits for the owner's answer while the peer does not repeat it. A peer that still
  // wants an answer repeats its request, at the latest after the time of an MRA.
  Duration longest_silence = std::chrono::minutes(4);
  // The maximum number of connections in TIMEWAIT or refused at most 16 s ago. Beyond it, the oldest waits
  // end early. REQUIRES: more than 0
  size_t max_waiting = 65536;
  // The maximum exponent that we accept from a peer for its response time, and for TIMEWAIT: 22 is 17 s.
  // Larger ones are cut.
  uint8_t longest_response_timeout = 22;
  // The minimum exponent for a peer's response time in answer_time(): 14 is 67 ms.
  uint8_t shortest_response_timeout = 14;
  // The maximum exponent that we accept in an MRA: 24 is 69 s. Larger ones are cut.
  uint8_t longest_service_timeout = 24;
  // The upper 32 bits of the transaction IDs of our requests.
  uint32_t transaction_prefix = 2;
  // The maximum number of REPs and REJs retransmitted by timer to a peer that has never answered.
  uint8_t max_unasked = 3;
  // Makes communication IDs a counter XORed with this mask; otherwise IDs are unpredictable (id_sequence.h).
  std::optional<uint32_t> id_mask;
  // Whether LAPs go to the handler. If not, they are answered with AprStatus::kUnsupported, since RoCE has no
  // alternate paths (annex A16).
  bool alternate_paths = false;

  // Returns the time to wait if a peer announces this exponent for its response time or for the lifetime of
  // its packets.
  Duration response_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_response_timeout));
  }
  // Like response_time(), but at least the time of shortest_response_timeout. Used for retransmissions.
  Duration answer_time(uint8_t exponent) const {
    return response_time(std::max(exponent, shortest_response_timeout));
  }
  // Returns the time to wait if a peer asks for this exponent in an MRA.
  Duration service_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_service_timeout));
  }
};

}  // namespace verbena::cm
