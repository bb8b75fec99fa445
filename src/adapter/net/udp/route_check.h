// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "base/time.h"
#include "wire/roce/path.h"

namespace verbena::net {

// Asks the kernel whether packets of the path have a route, and whether the neighbour that they go to first
// has a hardware address. The kernel's RDMA core does so when a connected queue pair becomes RTR and when an
// address handle is made (ib_resolve_eth_dmac()). A neighbour that is not known is looked for, for at most
// `patience`; with 0 it is an error only if the kernel has looked for it and found none.
//
// Addresses of this host and network devices without ARP need no neighbour. Nobody else is asked, the agent
// neither. Where the kernel cannot be asked, or a firewall lets nothing out to look for the neighbour, there
// is no error.
//
// Errors, with a reason: ENETUNREACH, EHOSTUNREACH or EACCES: no route, as the kernel says; ETIMEDOUT: no
// neighbour. Any thread, in the network namespace that packets leave from.
Result<void> check_route(const roce::Path& path, Duration patience);

}  // namespace verbena::net
