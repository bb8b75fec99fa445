// SPDX-License-Identifier: Apache-2.0
// Messages between the library and the agent contain structs that programs were compiled with. Checked at
// compile time.
#include <cstddef>

#include <gtest/gtest.h>
#include <infiniband/umad.h>

#include "control/protocol/mad_messages.h"

namespace verbena {
namespace {

using protocol::UserMad;

#define SAME(ours, theirs) static_assert(offsetof(UserMad, ours) == offsetof(ib_user_mad, theirs))

static_assert(sizeof(UserMad) == sizeof(ib_user_mad));
SAME(agent, agent_id);
SAME(status, status);
SAME(timeout_ms, timeout_ms);
SAME(retries, retries);
SAME(length, length);
SAME(queue_pair_be, addr.qpn);
SAME(qkey_be, addr.qkey);
SAME(lid_be, addr.lid);
SAME(sl, addr.sl);
SAME(path_bits, addr.path_bits);
SAME(grh_present, addr.grh_present);
SAME(gid_index, addr.gid_index);
SAME(hop_limit, addr.hop_limit);
SAME(traffic_class, addr.traffic_class);
SAME(gid, addr.gid);
SAME(flow_label_be, addr.flow_label);
SAME(pkey_index, addr.pkey_index);

#if defined(__x86_64__)
static_assert(sizeof(umad_port_t) == 112 && offsetof(umad_port_t, link_layer) == 88);
static_assert(sizeof(umad_ca_t) == 208 && offsetof(umad_ca_t, ports) == 128);
static_assert(sizeof(umad_reg_attr) == 32);
#endif

TEST(UserMad, HasTheKernelsLayout) {
  SUCCEED();
}

}  // namespace
}  // namespace verbena
