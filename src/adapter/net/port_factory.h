// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "adapter/net/port.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

// How a shard reaches the wire, as the agent answers when it leases a slot.
struct Ways {
  uint32_t slot = 0;
  UniqueFd udp_socket;      // bound to RoCEv2's port
  UniqueFd is_forwarded{};  // else the socket on which the agent forwards packets; neither: there is no wire
};

// Opens the ports of a shard, in order of preference; none without a wire. They count in `counters`, which
// outlives them.
Result<PortList> open_ports(Ways ways, PortCounters& counters);

// open_ports(), or a replacement that makes simulated ports for tests and benchmarks.
using PortFactory = std::function<Result<PortList>(Ways ways, PortCounters& counters)>;

}  // namespace verbena::net
