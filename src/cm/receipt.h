// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "cm/events.h"

namespace verbena::cm {

// How the datagram at hand came, and what becomes of it.
struct Receipt {
  uint64_t transaction;
  const Arrival& arrival;
  TimePoint now;
  Disposal& disposal;

  const roce::Address& peer() const { return arrival.path.source; }
};

}  // namespace verbena::cm
