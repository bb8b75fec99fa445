// SPDX-License-Identifier: Apache-2.0
// Calls with objects that were destroyed, or whose handle was overwritten. They give errors, as the kernel's
// handle table does, and do not access freed memory (run with the address sanitizer to see that).
#include <array>
#include <functional>

#include <fcntl.h>

#include "adapter/objects/support/endpoint.h"

namespace verbena::adapter::testing {
namespace {

// Returns the operations of a context. verbs.h would find them through the object, which may be freed memory.
const verbs_context& operations(ibv_context* context) {
  return *verbs_get_ctx(context);
}

// One object of each kind.
class StaleObjects : public ::testing::Test {
 protected:
  void SetUp() override {
    context = open_device();
    ASSERT_NE(context, nullptr);
    pd = ibv_alloc_pd(context.get());
    channel = ibv_create_comp_channel(context.get());
    cq = ibv_create_cq(context.get(), 16, nullptr, channel, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAllAccess);
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    srq = ibv_create_srq(pd, &srq_attr);
    qp = make_qp(pd, cq, nullptr);
    ah_attr.is_global = 1;
    ah_attr.port_num = 1;
    ah_attr.grh.sgid_index = static_cast<uint8_t>(find_gid(context.get()));
    ibv_query_gid(context.get(), 1, ah_attr.grh.sgid_index, &ah_attr.grh.dgid);
    ah = ibv_create_ah(pd, &ah_attr);
    ASSERT_TRUE(pd && channel && cq && mr && srq && qp && ah);
  }

  ibv_qp* make_qp(ibv_pd* its_pd, ibv_cq* its_cq, ibv_srq* its_srq) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = its_cq;
    init.srq = its_srq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {
        .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    return ibv_create_qp(its_pd, &init);
  }

  // Returns the errno of a verb that creates an object; 0 if it succeeded.
  template <class Object>
  static int error_of(Object* object) {
    return object == nullptr ? errno : 0;
  }

  void destroy_all() {
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  }

  alignas(4096) std::array<std::byte, 4096> memory{};
  Context context;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_ah* ah = nullptr;
  ibv_ah_attr ah_attr{};
};

TEST_F(StaleObjects, CannotBeDestroyedAgain) {
  destroy_all();
  EXPECT_EQ(ibv_destroy_ah(ah), ENOENT);
  EXPECT_EQ(ibv_destroy_qp(qp), ENOENT);
  EXPECT_EQ(ibv_destroy_srq(srq), ENOENT);
  EXPECT_EQ(ibv_dereg_mr(mr), ENOENT);
  EXPECT_EQ(ibv_destroy_cq(cq), ENOENT);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), ENOENT);
  EXPECT_EQ(ibv_dealloc_pd(pd), ENOENT);
}

TEST_F(StaleObjects, CannotBeDestroyedAgainThroughTheOperationsOfTheContext) {
  const verbs_context& ops = operations(context.get());
  ibv_alloc_dm_attr dm_attr{};
  dm_attr.length = 64;
  ibv_dm* dm = ibv_alloc_dm(context.get(), &dm_attr);
  ibv_td_init_attr td_attr{};
  ibv_td* td = ibv_alloc_td(context.get(), &td_attr);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  ibv_xrcd_init_attr xrcd_attr{};
  xrcd_attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  xrcd_attr.fd = -1;
  xrcd_attr.oflags = O_CREAT;
  ibv_xrcd* xrcd = ibv_open_xrcd(context.get(), &xrcd_attr);
  ibv_counters_init_attr counters_attr{};
  ibv_counters* counters = ibv_create_counters(context.get(), &counters_attr);
  ibv_wq_init_attr wq_attr{};
  wq_attr.wq_type = IBV_WQT_RQ;
  wq_attr.max_wr = wq_attr.max_sge = 1;
  wq_attr.pd = pd;
  wq_attr.cq = cq;
  ibv_wq* wq = ibv_create_wq(context.get(), &wq_attr);
  ibv_rwq_ind_table_init_attr table_attr{};
  table_attr.ind_tbl = &wq;
  ibv_rwq_ind_table* table = ibv_create_rwq_ind_table(context.get(), &table_attr);
  ASSERT_TRUE(dm && td && mw && xrcd && counters && wq && table);
  for (const int expected : {0, ENOENT}) {
    EXPECT_EQ(ops.free_dm(dm), expected);
    EXPECT_EQ(ops.dealloc_td(td), expected);
    EXPECT_EQ(ops.context.ops.dealloc_mw(mw), expected);
    EXPECT_EQ(ops.close_xrcd(xrcd), expected);
    EXPECT_EQ(ops.destroy_counters(counters), expected);
    EXPECT_EQ(ops.destroy_rwq_ind_table(table), expected);
    EXPECT_EQ(ops.destroy_wq(wq), expected);
  }
  destroy_all();
}

TEST_F(StaleObjects, AreNothingToMakeOthersOf) {
  ibv_pd* const live_pd = ibv_alloc_pd(context.get());
  ibv_cq* const live_cq = ibv_create_cq(context.get(), 16, nullptr, nullptr, 0);
  destroy_all();
  EXPECT_EQ(error_of(make_qp(pd, live_cq, nullptr)), EINVAL);
  EXPECT_EQ(error_of(make_qp(live_pd, cq, nullptr)), EINVAL);
  EXPECT_EQ(error_of(make_qp(live_pd, live_cq, srq)), EINVAL);
  EXPECT_EQ(error_of(ibv_reg_mr(pd, memory.data(), memory.size(), kAllAccess)), EINVAL);
  EXPECT_EQ(error_of(ibv_create_cq(context.get(), 16, nullptr, channel, 0)), EINVAL);
  EXPECT_EQ(error_of(ibv_create_ah(pd, &ah_attr)), EINVAL);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  EXPECT_EQ(error_of(ibv_create_srq(pd, &srq_attr)), EINVAL);
  ibv_parent_domain_init_attr parent{};
  parent.pd = pd;
  EXPECT_EQ(error_of(ibv_alloc_parent_domain(context.get(), &parent)), EINVAL);
  EXPECT_EQ(ibv_destroy_cq(live_cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(live_pd), 0);
}

TEST_F(StaleObjects, CanNeitherBeAskedNorChanged) {
  destroy_all();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EINVAL);
  EXPECT_EQ(ibv_attach_mcast(qp, &ah_attr.grh.dgid, 0), EINVAL);
  ibv_srq_attr srq_attr{};
  EXPECT_EQ(ibv_query_srq(srq, &srq_attr), EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq, 32), EINVAL);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            IBV_REREG_MR_ERR_CMD);
  ibv_cq* told = nullptr;
  void* its_context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(channel, &told, &its_context), -1);
  EXPECT_EQ(errno, EINVAL);
  ibv_ack_cq_events(cq, 1);
}

TEST_F(StaleObjects, AreAlsoThoseWhoseHandleWasSpoiled) {
  const auto spoiled = [](auto* object, const std::function<int()>& call) {
    object->handle ^= 0x10000;
    const int error = call();
    object->handle ^= 0x10000;
    return error;
  };
  EXPECT_EQ(spoiled(qp, [&] { return ibv_destroy_qp(qp); }), ENOENT);
  EXPECT_EQ(spoiled(srq, [&] { return ibv_destroy_srq(srq); }), ENOENT);
  EXPECT_EQ(spoiled(mr, [&] { return ibv_dereg_mr(mr); }), ENOENT);
  EXPECT_EQ(spoiled(cq, [&] { return ibv_destroy_cq(cq); }), ENOENT);
  EXPECT_EQ(spoiled(ah, [&] { return ibv_destroy_ah(ah); }), ENOENT);
  EXPECT_EQ(spoiled(pd, [&] { return ibv_dealloc_pd(pd); }), ENOENT);
  EXPECT_EQ(spoiled(pd, [&] { return error_of(make_qp(pd, cq, nullptr)); }), EINVAL);
  EXPECT_EQ(spoiled(cq, [&] { return error_of(make_qp(pd, cq, nullptr)); }), EINVAL);
  destroy_all();
}

// The kernel looks a handle up in the file of the context that the program names.
TEST_F(StaleObjects, AreAlsoThoseWhoseContextWasChanged) {
  Context other = open_device();
  const auto changed = [&](auto* object, const std::function<int()>& call) {
    for (ibv_context* const wrong : {other.get(), static_cast<ibv_context*>(nullptr)}) {
      object->context = wrong;
      EXPECT_EQ(call(), ENOENT);
      object->context = context.get();
    }
  };
  changed(ah, [&] { return ibv_destroy_ah(ah); });
  changed(qp, [&] { return ibv_destroy_qp(qp); });
  changed(srq, [&] { return ibv_destroy_srq(srq); });
  changed(mr, [&] { return ibv_dereg_mr(mr); });
  changed(cq, [&] { return ibv_destroy_cq(cq); });
  changed(channel, [&] { return ibv_destroy_comp_channel(channel); });
  changed(pd, [&] { return ibv_dealloc_pd(pd); });
  pd->context = other.get();
  EXPECT_EQ(error_of(make_qp(pd, cq, nullptr)), EINVAL);
  pd->context = context.get();
  destroy_all();
}

// Destruction uses the objects given at creation: these fields are for verbs.h only.
TEST_F(StaleObjects, AreDestroyedByWhatTheyWereMadeOf) {
  ibv_pd* const other_pd = ibv_alloc_pd(context.get());
  ibv_cq* const other_cq = ibv_create_cq(context.get(), 16, nullptr, nullptr, 0);
  ibv_mw* const mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  ASSERT_TRUE(other_pd && other_cq && mw);
  ah->pd = qp->pd = srq->pd = mr->pd = mw->pd = other_pd;
  qp->send_cq = qp->recv_cq = other_cq;
  qp->qp_num ^= 1;
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  destroy_all();
  EXPECT_EQ(ibv_destroy_cq(other_cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(other_pd), 0);
}

TEST_F(StaleObjects, AreThoseThatTheirContextTookAlong) {
  ibv_context* const gone = context.release();
  EXPECT_EQ(ibv_close_device(gone), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), ENOENT);
  EXPECT_EQ(ibv_dealloc_pd(pd), ENOENT);
  EXPECT_EQ(ibv_close_device(gone), EINVAL);
  EXPECT_EQ(error_of(ibv_alloc_pd(gone)), EINVAL);
}

}  // namespace
}  // namespace verbena::adapter::testing
