// SPDX-License-Identifier: Apache-2.0
// The layout that programs were compiled with (amd64). Holds at compile time, or nothing here builds.
#include <cstddef>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#if defined(__x86_64__)
#define SIZE(type, size) static_assert(sizeof(type) == (size))
#define MEMBER(type, member, offset) static_assert(offsetof(type, member) == (offset))

SIZE(ibv_device, 664);
MEMBER(ibv_device, node_type, 16);
MEMBER(ibv_device, transport_type, 20);
MEMBER(ibv_device, name, 24);
MEMBER(ibv_device, dev_name, 88);
MEMBER(ibv_device, dev_path, 152);
MEMBER(ibv_device, ibdev_path, 408);
SIZE(ibv_context, 328);
MEMBER(ibv_context, ops, 8);
MEMBER(ibv_context, cmd_fd, 264);
MEMBER(ibv_context, async_fd, 268);
MEMBER(ibv_context, num_comp_vectors, 272);
MEMBER(ibv_context, mutex, 280);
MEMBER(ibv_context, abi_compat, 320);
SIZE(ibv_context_ops, 256);
MEMBER(ibv_context_ops, alloc_mw, 56);
MEMBER(ibv_context_ops, bind_mw, 64);
MEMBER(ibv_context_ops, dealloc_mw, 72);
MEMBER(ibv_context_ops, poll_cq, 88);
MEMBER(ibv_context_ops, req_notify_cq, 96);
MEMBER(ibv_context_ops, post_srq_recv, 160);
MEMBER(ibv_context_ops, post_send, 200);
MEMBER(ibv_context_ops, post_recv, 208);
SIZE(verbs_context, 648);
MEMBER(verbs_context, query_port, 0);
MEMBER(verbs_context, priv, 208);
MEMBER(verbs_context, sz, 312);
MEMBER(verbs_context, context, 320);
SIZE(ibv_cq, 128);
SIZE(ibv_cq_ex, 288);
MEMBER(ibv_cq_ex, status, 132);
MEMBER(ibv_cq_ex, wr_id, 136);
MEMBER(ibv_cq_ex, start_poll, 144);
MEMBER(ibv_cq_ex, read_completion_wallclock_ns, 280);
SIZE(ibv_qp, 160);
MEMBER(ibv_qp, qp_num, 52);
MEMBER(ibv_qp, state, 56);
MEMBER(ibv_qp, qp_type, 60);
SIZE(ibv_qp_ex, 352);
MEMBER(ibv_qp_ex, comp_mask, 160);
MEMBER(ibv_qp_ex, wr_id, 168);
MEMBER(ibv_qp_ex, wr_flags, 176);
MEMBER(ibv_qp_ex, wr_atomic_cmp_swp, 184);
MEMBER(ibv_qp_ex, wr_abort, 336);
MEMBER(ibv_qp_ex, wr_atomic_write, 344);
SIZE(ibv_pd, 16);
SIZE(ibv_mr, 48);
SIZE(ibv_mw, 32);
SIZE(ibv_srq, 128);
SIZE(ibv_ah, 24);
SIZE(ibv_comp_channel, 16);
SIZE(ibv_wq, 152);
MEMBER(ibv_wq, post_recv, 48);
SIZE(ibv_dm, 32);
MEMBER(ibv_dm, memcpy_to_dm, 8);
SIZE(ibv_td, 8);
SIZE(ibv_xrcd, 8);
SIZE(ibv_flow, 24);
SIZE(ibv_rwq_ind_table, 24);
SIZE(ibv_counters, 8);
SIZE(ibv_port_attr, 52);
MEMBER(ibv_port_attr, flags, 47);
MEMBER(ibv_port_attr, port_cap_flags2, 48);
SIZE(ibv_device_attr, 232);
SIZE(ibv_device_attr_ex, 400);
SIZE(ibv_gid_entry, 32);
SIZE(ibv_wc, 48);
SIZE(ibv_send_wr, 128);
SIZE(ibv_recv_wr, 32);
SIZE(ibv_sge, 16);
SIZE(ibv_qp_attr, 144);
SIZE(ibv_qp_init_attr, 64);
SIZE(ibv_qp_init_attr_ex, 136);
SIZE(ibv_async_event, 16);
SIZE(ibv_ah_attr, 32);
SIZE(ibv_global_route, 24);
#endif

namespace {

// Old programs find operations of today's contexts by their distance from the embedded ibv_context.
TEST(Layout, ExtendedOperationsLieBeforeTheContext) {
  EXPECT_EQ(offsetof(verbs_context, context) + sizeof(ibv_context), sizeof(verbs_context));
  EXPECT_EQ(offsetof(verbs_context, sz) + sizeof(size_t), offsetof(verbs_context, context));
}

}  // namespace
