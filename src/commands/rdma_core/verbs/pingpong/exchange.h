// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "commands/rdma_core/verbs/pingpong/address.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// The number of addresses in a message, whatever the number of queue pairs. Unused ones are zero.
size_t told_addresses(const PingpongProgram& program);

// Exchanges addresses with the peer over TCP. A server calls `connect_server` before it replies, since the
// client may send as soon as it has the reply. Nullopt after reporting an error.
std::optional<std::vector<Address>> exchange(
    const PingpongProgram& program, const Settings& settings, std::vector<Address> local,
    const std::function<bool(const std::vector<Address>&)>& connect_server);

}  // namespace verbena::rdma_core
