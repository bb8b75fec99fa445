// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "management/cm/timeouts.h"

namespace verbena::cm {

struct ManagerConfig {
  // The maximum number of passive connections and resolutions that are unanswered by the owner, or whose
  // answer the peer has not acknowledged. Further REQs are dropped, so that their senders retry. base/quota.h
  // shares the number among accounts.
  size_t max_half_open = 8192;
  uint32_t own_account = 0;  // an account that may use the reserve and the whole number
  // How long a request waits for the owner without a repetition from its sender. A sender that still wants an
  // answer repeats it, at the latest after the time of an MRA.
  Duration longest_silence = std::chrono::minutes(4);
  // The maximum number of connections in TIMEWAIT or refused a short while ago; beyond it, the oldest waits
  // end early. REQUIRES: more than 0
  size_t max_waiting = 65536;
  // The maximum exponents that we accept from a peer: for its answers and TIMEWAIT, and for an MRA.
  uint8_t longest_response_timeout = 22;
  // The minimum exponent for its answers, 67 ms: nothing is retransmitted sooner.
  uint8_t shortest_response_timeout = 14;
  uint8_t longest_service_timeout = 24;
  // The high half of the transaction IDs of our requests.
  uint32_t transaction_prefix = 2;
  // The maximum number of retransmissions by timer to a peer that has never answered.
  uint8_t max_unasked = 3;
  // Makes communication IDs a counter under this mask (id_sequence.h). Without it IDs are unpredictable.
  std::optional<uint32_t> id_mask;
  // Whether LAPs go to the handler. If not, they are answered with kUnsupported: RoCE has no alternate paths
  // (annex A16).
  bool alternate_paths = false;

  // The time to wait if a peer announces this exponent for its answers or for the lifetime of its packets.
  Duration response_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_response_timeout));
  }
  // The same for its answers, after which we retransmit.
  Duration answer_time(uint8_t exponent) const {
    return response_time(std::max(exponent, shortest_response_timeout));
  }
  // The time to wait if a peer asks for this exponent in an MRA.
  Duration service_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_service_timeout));
  }
};

}  // namespace verbena::cm
