// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

namespace verbena::adapter {

struct MulticastBinding;
struct Qp;

// Attach a UD QP to a multicast group and detach it (ibv_attach_mcast(3)). The engine joins the group with
// the shard's first attached QP, and leaves the group with the last. Return 0 or an errno value. Thread-safe.
int attach_to_group(Qp& qp, const ibv_gid& gid, uint16_t lid);
int detach_from_group(Qp& qp, const ibv_gid& gid, uint16_t lid);

// Ends one attachment in the engine, when the QP is detached or destroyed. The caller removes `binding` from
// qp.multicast. REQUIRES: the QP is attached
void leave_group(Qp& qp, const MulticastBinding& binding);

}  // namespace verbena::adapter
