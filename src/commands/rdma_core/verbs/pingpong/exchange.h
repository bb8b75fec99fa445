// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "commands/rdma_core/verbs/pingpong/address.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// How many addresses a pingpong tells the other end, whatever number of queue pairs it has: the others are
// zero.
size_t told_addresses(const PingpongProgram& program);

// Tells the other end our addresses over TCP and hears its. A server connects its queue pairs in between, by
// `connect_server`: what the client sends once it has heard from it must be received. Nothing after a
// complaint.
std::optional<std::vector<Address>> exchange(
    const PingpongProgram& program, const Settings& settings, std::vector<Address> local,
    const std::function<bool(const std::vector<Address>&)>& connect_server);

}  // namespace verbena::rdma_core
