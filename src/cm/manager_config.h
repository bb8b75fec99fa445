// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "cm/timeouts.h"

namespace verbena::cm {

struct ManagerConfig {
  // Passive connections and resolutions that the owner has not answered, or whose answer the peer has not.
  // REQs beyond are dropped, so that their senders try again.
  size_t max_half_open = 4096;
  // Connections in TIMEWAIT, and those refused a short while ago; beyond, the oldest are forgotten early.
  // REQUIRES: more than 0
  size_t max_waiting = 65536;
  // The longest that a peer's word makes us wait: for each of its answers and in TIMEWAIT, and after an MRA.
  uint8_t longest_response_timeout = 22;
  uint8_t longest_service_timeout = 24;
  // The high half of transaction IDs that begin here.
  uint32_t transaction_prefix = 2;
  // Communication IDs are a count, made unguessable by this; drawn when not given.
  std::optional<uint32_t> id_mask;
  // Whether LAPs go to the handler. If not they are answered with kUnsupported: over RoCE there is no
  // alternate path (annex A16).
  bool alternate_paths = false;

  // How long we wait when a peer has named this time for its answers, or for its packets to be gone.
  Duration response_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_response_timeout));
  }
  // How long we wait when a peer has asked for this time in an MRA.
  Duration service_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_service_timeout));
  }
};

}  // namespace verbena::cm
