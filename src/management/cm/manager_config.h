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
  // Passive connections and resolutions that the owner has not answered, or whose answer the peer has not.
  // REQs beyond are dropped, so that their senders try again. One account gets half of them
  // (base/quota.h).
  size_t max_half_open = 8192;
  uint32_t own_account = 0;  // for which some are kept
  // How long a request waits for the owner while its sender says nothing. One that still wants an answer
  // repeats it, if after the time that an MRA asked for.
  Duration longest_silence = std::chrono::minutes(4);
  // Connections in TIMEWAIT, and those refused a short while ago; beyond, the oldest are forgotten early.
  // REQUIRES: more than 0
  size_t max_waiting = 65536;
  // The longest that a peer's word makes us wait: for each of its answers and in TIMEWAIT, and after an MRA.
  uint8_t longest_response_timeout = 22;
  // And the shortest for an answer of its, 67 ms: what it is sent is not repeated sooner.
  uint8_t shortest_response_timeout = 14;
  uint8_t longest_service_timeout = 24;
  // The high half of transaction IDs that begin here.
  uint32_t transaction_prefix = 2;
  // How often a timer repeats what a peer that has never answered was sent, at most.
  uint8_t max_unasked = 3;
  // Makes communication IDs a count under this mask (id_sequence.h); without it nobody can tell the next.
  std::optional<uint32_t> id_mask;
  // Whether LAPs go to the handler. If not they are answered with kUnsupported: over RoCE there is no
  // alternate path (annex A16).
  bool alternate_paths = false;

  // How long we wait when a peer has named this time for its answers, or for its packets to be gone.
  Duration response_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_response_timeout));
  }
  // The same for its answers, after each of which we repeat what we have said.
  Duration answer_time(uint8_t exponent) const {
    return response_time(std::max(exponent, shortest_response_timeout));
  }
  // How long we wait when a peer has asked for this time in an MRA.
  Duration service_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_service_timeout));
  }
};

}  // namespace verbena::cm
