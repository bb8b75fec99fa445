// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "base/time.h"
#include "wire/roce/path.h"

namespace verbena::net {

// Asks the kernel whether packets of the path have a route, and whether the kernel knows the hardware address
// of their next hop. The kernel's RDMA core checks the same when a connected QP becomes RTR and when an
// address handle is created (ib_resolve_eth_dmac()). If the hardware address is unknown, the kernel searches
// for it, and check_route() waits at most for `patience`. With a `patience` of 0, an unknown address is an
// error only if the kernel has already searched for it without an answer.
//
// Addresses of this host and network devices without ARP need no hardware address. Only the kernel is asked,
// not the agent. Returns success if the kernel cannot be asked, or if a firewall blocks the search.
//
// Errors, with a reason: ENETUNREACH, EHOSTUNREACH or EACCES (the kernel's error) if there is no route;
// ETIMEDOUT if the next hop does not answer. Any thread, in the network namespace from which packets leave.
Result<void> check_route(const roce::Path& path, Duration patience);

}  // namespace verbena::net
