// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/events.h"

namespace verbena::cm {

// The context of the datagram being handled: how it arrived, and on_mad()'s result (`disposal`).
struct Incoming {
  uint64_t transaction;
  const Arrival& arrival;
  TimePoint now;
  Disposal& disposal;

  const roce::Address& peer() const { return arrival.path.source; }
};

// Whether the datagram came from another port although the connection's peer uses UDP port 4791. Then another
// program of the peer's host sent it.
inline bool is_from_other_port(const Connection& connection, const Incoming& incoming) {
  return connection.info.peer_has_roce_port && !incoming.arrival.from_roce_port;
}

}  // namespace verbena::cm
