// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// Formats a GID as inet_ntop(3) formats an IPv6 address.
std::string gid_text(const ibv_gid& gid);

}  // namespace verbena::rdma_core
