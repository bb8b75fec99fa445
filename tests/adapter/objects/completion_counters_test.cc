// SPDX-License-Identifier: Apache-2.0
// Completion counters (ibv_create_comp_cntr(3)): the completions that they count, and calls that fail.
#include <cstring>

#include "adapter/objects/support/endpoint.h"
#include "libraries/libibverbs/provider/newer_objects.h"

namespace verbena::adapter::testing {

// The C functions, declared with our copies of the structs: the build's headers may lack them.
int query_comp_cntr_caps(ibv_context* context, void* caps, size_t size) __asm__("_ibv_query_comp_cntr_caps");
provider::CompletionCounter* create_comp_cntr(
    ibv_context* context, const provider::CompletionCounterInitAttr* attr) __asm__("ibv_create_comp_cntr");
int destroy_comp_cntr(provider::CompletionCounter* counter) __asm__("ibv_destroy_comp_cntr");
int set_comp_cntr(provider::CompletionCounter* counter, uint64_t value) __asm__("ibv_set_comp_cntr");
int set_err_comp_cntr(provider::CompletionCounter* counter, uint64_t value) __asm__("ibv_set_err_comp_cntr");
int inc_comp_cntr(provider::CompletionCounter* counter, uint64_t amount) __asm__("ibv_inc_comp_cntr");
int inc_err_comp_cntr(provider::CompletionCounter* counter, uint64_t amount) __asm__("ibv_inc_err_comp_cntr");
int read_comp_cntr(provider::CompletionCounter* counter, uint64_t* value) __asm__("ibv_read_comp_cntr");
int read_err_comp_cntr(provider::CompletionCounter* counter,
                       uint64_t* value) __asm__("ibv_read_err_comp_cntr");
int attach_comp_cntr(ibv_qp* qp, provider::CompletionCounter* counter,
                     const provider::AttachCounterAttr* attr) __asm__("ibv_qp_attach_comp_cntr");

namespace {

using namespace provider;

using Counter = std::unique_ptr<CompletionCounter, Destroy<destroy_comp_cntr>>;

Counter make_counter(ibv_context* context, int type = kCountsRequests) {
  const CompletionCounterInitAttr attr{0, type, 0};
  return Counter(create_comp_cntr(context, &attr));
}

int attach(Endpoint& endpoint, const Counter& counter, uint32_t requests) {
  const AttachCounterAttr attr{0, requests};
  return attach_comp_cntr(endpoint.qp.get(), counter.get(), &attr);
}

uint64_t completed(const Counter& counter) {
  uint64_t value = UINT64_MAX;
  EXPECT_EQ(read_comp_cntr(counter.get(), &value), 0);
  return value;
}

uint64_t failed(const Counter& counter) {
  uint64_t value = UINT64_MAX;
  EXPECT_EQ(read_err_comp_cntr(counter.get(), &value), 0);
  return value;
}

TEST(CompletionCounters, HoldValuesThatTheProgramSets) {
  Context context = open_device();
  const Counter counter = make_counter(context.get());
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(counter->context, context.get());
  EXPECT_EQ(completed(counter), 0u);
  EXPECT_EQ(failed(counter), 0u);
  EXPECT_EQ(set_comp_cntr(counter.get(), 40), 0);
  EXPECT_EQ(inc_comp_cntr(counter.get(), 2), 0);
  EXPECT_EQ(set_err_comp_cntr(counter.get(), 5), 0);
  EXPECT_EQ(inc_err_comp_cntr(counter.get(), 4), 0);
  EXPECT_EQ(completed(counter), 42u);
  EXPECT_EQ(failed(counter), 9u);
}

TEST(CompletionCounters, CapsSayWhichRequestsAreCounted) {
  Context context = open_device();
  CompletionCounterCaps caps{};
  ASSERT_EQ(query_comp_cntr_caps(context.get(), &caps, sizeof caps), 0);
  EXPECT_EQ(caps.max_value, UINT64_MAX);
  EXPECT_GT(caps.max_counters, 0u);
  EXPECT_EQ(caps.supported_qp_attach_ops, kCountSend | kCountReceive | kCountRead | kCountWrite);
  struct {
    CompletionCounterCaps known;
    uint64_t later = 7;
  } longer;
  ASSERT_EQ(query_comp_cntr_caps(context.get(), &longer, sizeof longer), 0);
  EXPECT_EQ(longer.later, 0u);
}

// Requests count whether signaled or not.
TEST(CompletionCounters, CountEachRequestOfTheirKind) {
  Endpoint a{{}}, b{{}};
  const Counter sends = make_counter(a.context.get()), one_sided = make_counter(a.context.get());
  const Counter bytes = make_counter(b.context.get(), kCountsBytes);
  ASSERT_EQ(attach(a, sends, kCountSend), 0);
  ASSERT_EQ(attach(a, one_sided, kCountRead | kCountWrite), 0);
  ASSERT_EQ(attach(b, bytes, kCountReceive), 0);
  a.connect(b.address());
  b.connect(a.address());

  constexpr uint64_t kMessages = 20;
  const ibv_sge piece = a.piece(0, 100);
  for (uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(b.post_receive(i, b.piece(0, 4096)), 0);
    const bool signaled = i + 1 == kMessages;
    ASSERT_EQ(a.post_send(send_request(i, signaled ? IBV_SEND_SIGNALED : 0), {&piece, 1}), 0);
  }
  EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
  for (uint64_t i = 0; i < kMessages; ++i) EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(completed(sends), kMessages) << "unsignaled ones are counted too";
  EXPECT_EQ(completed(one_sided), 0u);
  EXPECT_EQ(completed(bytes), kMessages * 100);

  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    ASSERT_EQ(a.post_send(remote_request(opcode, 1, b.address()), {&piece, 1}), 0);
    EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(completed(one_sided), 2u);
  EXPECT_EQ(completed(sends), kMessages);
  EXPECT_EQ(failed(sends) + failed(one_sided) + failed(bytes), 0u);
  a.qp.reset();  // destroyed before its counters
  b.qp.reset();
}

TEST(CompletionCounters, CountErrorsAndFlushedRequests) {
  Endpoint a{{}}, b{{}};
  const Counter writes = make_counter(a.context.get(), kCountsBytes);
  const Counter receives = make_counter(b.context.get());
  ASSERT_EQ(attach(a, writes, kCountWrite), 0);
  ASSERT_EQ(attach(b, receives, kCountReceive), 0);
  a.connect(b.address());
  b.connect(a.address());
  Address nowhere = b.address();
  nowhere.rkey ^= 1;
  const ibv_sge piece = a.piece(0, 100);
  ASSERT_EQ(a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, nowhere), {&piece, 1}), 0);
  EXPECT_EQ(a.completion().status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(b.post_receive(1, b.piece(0, 8)), 0);
  EXPECT_EQ(b.completion().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(failed(writes), 1u);
  EXPECT_EQ(completed(writes), 0u);
  EXPECT_EQ(failed(receives), 1u);
  a.qp.reset();
  b.qp.reset();
}

TEST(CompletionCounters, RefuseWhatTheyCannotCount) {
  Endpoint a{{}};
  Context other = open_device();
  const CompletionCounterInitAttr wrong[] = {{1, 0, 0}, {0, 2, 0}, {0, 0, 1}};
  for (const auto& attr : wrong) {
    EXPECT_EQ(create_comp_cntr(a.context.get(), &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  const Counter counter = make_counter(a.context.get()), second = make_counter(a.context.get());
  const Counter foreign = make_counter(other.get());
  EXPECT_EQ(attach(a, counter, kCountRemoteRead), EOPNOTSUPP);
  EXPECT_EQ(attach(a, counter, kCountSend | kCountRemoteWrite), EOPNOTSUPP);
  EXPECT_EQ(attach(a, counter, 0), EINVAL);
  EXPECT_EQ(attach(a, foreign, kCountSend), EINVAL) << "of another context";
  ASSERT_EQ(attach(a, counter, kCountSend), 0);
  EXPECT_EQ(attach(a, second, kCountReceive | kCountSend), EBUSY);
  EXPECT_EQ(attach(a, second, kCountReceive), 0);
  EXPECT_EQ(destroy_comp_cntr(counter.get()), EBUSY);
  a.connect(a.address());
  EXPECT_EQ(attach(a, second, kCountRead), EINVAL) << "in RTS";
  a.qp.reset();
  EXPECT_EQ(read_comp_cntr(counter.get(), nullptr), EINVAL);
}

TEST(CompletionCounters, AreKnownUntilTheyAreDestroyed) {
  Context context = open_device();
  CompletionCounter* const counter = make_counter(context.get()).release();
  EXPECT_EQ(destroy_comp_cntr(counter), 0);
  EXPECT_EQ(destroy_comp_cntr(counter), ENOENT);
  uint64_t value;
  EXPECT_EQ(read_comp_cntr(counter, &value), EINVAL);
  EXPECT_EQ(destroy_comp_cntr(nullptr), EINVAL);
}

}  // namespace
}  // namespace verbena::adapter::testing
