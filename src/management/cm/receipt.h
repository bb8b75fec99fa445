// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "management/cm/connection.h"
#include "management/cm/events.h"

namespace verbena::cm {

// How the datagram at hand came, and what becomes of it.
struct ReceiverReport {
  uint64_t transaction;
  const Arrival& arrival;
  TimePoint now;
  Disposal& disposal;

  const roce::Address& peer() const { return arrival.path.source; }
};

// The peer of the connection speaks from UDP port 4791, so another program of its host has sent the datagram.
inline bool is_from_other_port(const Connection& connection, const ReceiverReport& receipt) {
  return connection.info.peer_has_roce_port && !receipt.arrival.from_roce_port;
}

}  // namespace verbena::cm
