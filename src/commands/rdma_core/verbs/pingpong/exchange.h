// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "commands/rdma_core/verbs/pingpong/address.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// Returns the number of addresses that each end sends, whatever its number of queue pairs: 256 with a shared
// receive queue, else 1. Unused addresses are zero.
size_t told_addresses(const PingpongProgram& program);

// Exchanges addresses with the peer over TCP. Returns the peer's addresses, or nullopt after reporting an
// error. A server calls `connect_server` with them before it replies, since the client may then send at once.
std::optional<std::vector<Address>> exchange(
    const PingpongProgram& program, const Settings& settings, std::vector<Address> local,
    const std::function<bool(const std::vector<Address>&)>& connect_server);

}  // namespace verbena::rdma_core
