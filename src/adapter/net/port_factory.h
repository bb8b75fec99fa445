// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "adapter/net/port.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

// Which ways a shard has, as the agent answers when it lends a slot.
struct Ways {
  uint32_t slot = 0;
  UniqueFd udp_socket;     // bound to RoCEv2's port
  UniqueFd handed_over{};  // or where the agent hands over what comes to it. Neither: there is no wire
};

// Makes ports of them, in order of preference. All count in `counters`, for the life of the ports.
Result<PortList> open_ports(Ways ways, PortCounters& counters);

// open_ports(), or what stands in its place: simulated ports for a test or a bench.
using PortFactory = std::function<Result<PortList>(Ways ways, PortCounters& counters)>;

}  // namespace verbena::net
