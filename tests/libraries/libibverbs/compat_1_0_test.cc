// SPDX-License-Identifier: Apache-2.0
// A program of 2006: it finds the functions of IBVERBS_1.0, and sees only the structs of that ABI.
#include "libraries/libibverbs/compat_1_0.h"

#include <stdexcept>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace verbena::verbs::compat_1_0 {
namespace {

class OldProgram : public ::testing::Test {
 protected:
  OldProgram() : library_(dlopen(VERBENA_FAKE_LIBRARIES "/libibverbs.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    list_ = call<Device**>("ibv_get_device_list", static_cast<int*>(nullptr));
    context_ = call<Context*>("ibv_open_device", list_[0]);
    pd_ = call<Pd*>("ibv_alloc_pd", context_);
  }
  ~OldProgram() override {
    EXPECT_EQ(call<int>("ibv_dealloc_pd", pd_), 0);
    EXPECT_EQ(call<int>("ibv_close_device", context_), 0);
    call<void>("ibv_free_device_list", list_);
    dlclose(library_);
  }

  template <class R, class... Args>
  R call(const char* name, Args... args) {
    void* address = dlvsym(library_, name, "IBVERBS_1.0");
    if (address == nullptr) throw std::runtime_error(name);
    return reinterpret_cast<R (*)(Args...)>(address)(args...);
  }

  CompletionQueue* create_cq(ibv_comp_channel* channel = nullptr) {
    return call<CompletionQueue*>("ibv_create_cq", context_, 100, static_cast<void*>(this), channel, 0);
  }
  QueuePair* create_qp(CompletionQueue* cq, ibv_qp_type type = IBV_QPT_RC) {
    QpInitAttr attr{};
    attr.qp_context = this;
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {100, 100, 1, 1, 0};
    attr.qp_type = type;
    return call<QueuePair*>("ibv_create_qp", pd_, &attr);
  }

  void* library_;
  Device** list_ = nullptr;
  Context* context_ = nullptr;
  Pd* pd_ = nullptr;
};

TEST_F(OldProgram, SeesDevices) {
  EXPECT_STREQ(call<const char*>("ibv_get_device_name", list_[0]), "rxe_eth0");
  EXPECT_EQ(be64toh(call<__be64>("ibv_get_device_guid", list_[0])), 0x020000fffe000000U);
  EXPECT_EQ(list_[2], nullptr);
  EXPECT_EQ(context_->device, list_[0]);
  EXPECT_GE(context_->async_fd, 0);
}

TEST_F(OldProgram, Queries) {
  ibv_device_attr device{};
  EXPECT_EQ(call<int>("ibv_query_device", context_, &device), 0);
  EXPECT_EQ(device.max_qp, 1000);
  ibv_port_attr port{};
  port.port_cap_flags2 = 0x7777;
  EXPECT_EQ(call<int>("ibv_query_port", context_, uint8_t{1}, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.port_cap_flags2, 0x7777) << "beyond the struct of then";
  ibv_gid gid{};
  EXPECT_EQ(call<int>("ibv_query_gid", context_, uint8_t{1}, 0, &gid), 0);
  EXPECT_EQ(gid.raw[0], 0xfe);
  __be16 pkey = 0;
  EXPECT_EQ(call<int>("ibv_query_pkey", context_, uint8_t{1}, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
}

TEST_F(OldProgram, RegistersMemory) {
  char bytes[8];
  Mr* mr = call<Mr*>("ibv_reg_mr", pd_, static_cast<void*>(bytes), sizeof bytes, 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->lkey, mr->real->lkey);
  EXPECT_EQ(mr->rkey, mr->real->rkey);
  EXPECT_EQ(mr->pd, pd_);
  EXPECT_EQ(call<int>("ibv_dereg_mr", mr), 0);
}

TEST_F(OldProgram, PostsAndPollsThroughItsOwnOperations) {
  CompletionQueue* cq = create_cq();
  QueuePair* qp = create_qp(cq);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->qp_num, qp->real->qp_num);
  std::vector<SendWr> list(80);  // more than is translated at a time
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].wr_id = i;
    list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
  }
  SendWr* bad = nullptr;
  ASSERT_EQ(context_->ops.post_send(qp, list.data(), &bad), 0);
  std::vector<ibv_wc> completions(100);
  ASSERT_EQ(context_->ops.poll_cq(cq, 100, completions.data()), 80);
  for (size_t i = 0; i < list.size(); ++i) ASSERT_EQ(completions[i].wr_id, i);
  EXPECT_EQ(context_->ops.req_notify_cq(cq, 0), 0);

  list[50].num_sge = 9;  // exceeds the QP's limit
  EXPECT_NE(context_->ops.post_send(qp, list.data(), &bad), 0);
  EXPECT_EQ(bad, &list[50]);
  EXPECT_EQ(context_->ops.poll_cq(cq, 100, completions.data()), 50);

  RecvWr receives[2] = {};
  receives[0].next = &receives[1];
  receives[1].num_sge = 9;
  RecvWr* bad_receive = nullptr;
  EXPECT_NE(context_->ops.post_recv(qp, receives, &bad_receive), 0);
  EXPECT_EQ(bad_receive, &receives[1]);
  EXPECT_EQ(call<int>("ibv_destroy_qp", qp), 0);
  EXPECT_EQ(call<int>("ibv_destroy_cq", cq), 0);
}

TEST_F(OldProgram, SendsDatagramsToItsOwnAddressHandles) {
  CompletionQueue* cq = create_cq();
  QueuePair* qp = create_qp(cq, IBV_QPT_UD);
  ibv_ah_attr attr{};
  AddressHandle* ah = call<AddressHandle*>("ibv_create_ah", pd_, &attr);
  ASSERT_NE(ah, nullptr);
  SendWr wr{};
  wr.wr.ud.ah = ah;
  SendWr* bad = nullptr;
  EXPECT_EQ(context_->ops.post_send(qp, &wr, &bad), 0);
  EXPECT_EQ(call<int>("ibv_destroy_ah", ah), 0);
  EXPECT_EQ(call<int>("ibv_destroy_qp", qp), 0);
  EXPECT_EQ(call<int>("ibv_destroy_cq", cq), 0);
}

TEST_F(OldProgram, ChangesAndQueriesItsQueuePair) {
  CompletionQueue* cq = create_cq();
  QueuePair* qp = create_qp(cq);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(call<int>("ibv_modify_qp", qp, &attr, int{IBV_QP_STATE}), 0);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  QpInitAttr init{};
  EXPECT_EQ(call<int>("ibv_query_qp", qp, &attr, int{IBV_QP_STATE}, &init), 0);
  EXPECT_EQ(init.send_cq, cq);
  EXPECT_EQ(init.srq, nullptr);
  EXPECT_EQ(init.qp_context, this);
  EXPECT_EQ(call<int>("ibv_destroy_qp", qp), 0);
  EXPECT_EQ(call<int>("ibv_resize_cq", cq, 300), 0);
  EXPECT_EQ(cq->cqe, 300);
  EXPECT_EQ(call<int>("ibv_destroy_cq", cq), 0);
}

TEST_F(OldProgram, SharesReceiveQueues) {
  ibv_srq_init_attr attr{};
  attr.srq_context = this;
  attr.attr = {10, 1, 0};
  SharedReceiveQueue* srq = call<SharedReceiveQueue*>("ibv_create_srq", pd_, &attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(srq->srq_context, this);
  EXPECT_EQ(attr.srq_context, this);
  EXPECT_EQ(attr.attr.max_wr, 11U);
  RecvWr wr{};
  RecvWr* bad = nullptr;
  EXPECT_EQ(context_->ops.post_srq_recv(srq, &wr, &bad), 0);
  ibv_srq_attr limits{};
  limits.srq_limit = 4;
  EXPECT_EQ(call<int>("ibv_modify_srq", srq, &limits, int{IBV_SRQ_LIMIT}), 0);
  EXPECT_EQ(call<int>("ibv_query_srq", srq, &limits), 0);
  EXPECT_EQ(limits.srq_limit, 4U);
  EXPECT_EQ(call<int>("ibv_destroy_srq", srq), 0);
}

// ibv_create_comp_channel has no version of its own for these programs.
TEST_F(OldProgram, WaitsForCompletions) {
  ibv_comp_channel* channel =
      call<ibv_comp_channel*>("ibv_create_comp_channel", reinterpret_cast<ibv_context*>(context_));
  ASSERT_NE(channel, nullptr);
  CompletionQueue* cq = create_cq(channel);
  EXPECT_EQ(cq->cq_context, this);
  call<void>("ibv_ack_cq_events", cq, 1U);
  EXPECT_EQ(call<int>("ibv_destroy_cq", cq), 0);
  EXPECT_EQ(call<int>("ibv_destroy_comp_channel", channel), 0);
}

}  // namespace
}  // namespace verbena::verbs::compat_1_0
