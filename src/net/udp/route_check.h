// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "roce/path.h"

namespace verbena::net {

// Asks the kernel's routing tables whether packets of the path have a route. The kernel's RDMA core does so
// when a connected queue pair becomes RTR and when an address handle is made (ib_resolve_eth_dmac()). It
// resolves the neighbour, too, which packets over UDP do when they are sent.
//
// Errors, with a reason: ENETUNREACH, EHOSTUNREACH or EACCES, as the kernel says. Where the kernel cannot be
// asked there is none. Any thread, in the network namespace that packets leave from.
Result<void> check_route(const roce::Path& path);

}  // namespace verbena::net
