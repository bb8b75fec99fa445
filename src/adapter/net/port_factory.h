// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "adapter/net/port.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

// The sockets by which a shard reaches other hosts, from the agent's answer when it leases a slot to the
// shard. Without either socket, the shard reaches only peers on this host.
struct Ways {
  uint32_t slot = 0;
  UniqueFd udp_socket;      // bound to UDP port 4791; may be empty
  UniqueFd is_forwarded{};  // else the socket on which the agent forwards packets, or empty
};

// Opens the ports of a shard, in order of preference. Returns an empty list if `ways` has no socket. The
// ports add to `counters`, which must outlive them.
Result<PortList> open_ports(Ways ways, PortCounters& counters);

// open_ports(), or a replacement that makes simulated ports for tests and benchmarks.
using PortFactory = std::function<Result<PortList>(Ways ways, PortCounters& counters)>;

}  // namespace verbena::net
