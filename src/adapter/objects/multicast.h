// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace verbena::adapter {

struct MulticastBinding;
struct Qp;

// What a QP receives from multicast groups: ibv_attach_mcast(3). The groups themselves are the engine's. 0,
// or an errno value. Any thread.
int attach_to_group(Qp& qp, const ibv_gid& gid, uint16_t lid);
int detach_from_group(Qp& qp, const ibv_gid& gid, uint16_t lid);

// Ends one attachment of a QP that is going away. REQUIRES: it is attached
void leave_group(Qp& qp, const MulticastBinding& binding);

}  // namespace verbena::adapter
