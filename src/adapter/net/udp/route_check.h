// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "base/time.h"
#include "wire/roce/path.h"

namespace verbena::net {

// Asks the kernel whether packets of the path have a route, and whether their next hop has a hardware
// address. The kernel's RDMA core asks the same when a connected QP becomes RTR and when an address handle is
// created (ib_resolve_eth_dmac()). An unknown neighbour is searched for, for at most `patience`. With a
// patience of 0 it is an error only if the kernel has searched for it and found none.
//
// Addresses of this host and network devices without ARP need no neighbour. Only the kernel is asked, not the
// agent. It is no error if the kernel cannot be asked, or if a firewall blocks the search.
//
// Errors, with a reason: ENETUNREACH, EHOSTUNREACH or EACCES: no route, as the kernel says; ETIMEDOUT: no
// neighbour. Any thread, in the network namespace from which packets leave.
Result<void> check_route(const roce::Path& path, Duration patience);

}  // namespace verbena::net
