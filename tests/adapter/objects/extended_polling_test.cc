// SPDX-License-Identifier: Apache-2.0
// Completion queues of ibv_create_cq_ex(): their fields, and polling.
#include <cstring>
#include <thread>

#include "adapter/objects/support/endpoint.h"
#include "base/time.h"

namespace verbena::adapter::testing {
namespace {

constexpr uint64_t kAllFields = IBV_CREATE_CQ_SUP_WC_FLAGS;

// Waits until a batch begins. Fails after ten seconds.
::testing::AssertionResult starts(ibv_cq_ex* cq) {
  ibv_poll_cq_attr attr{};
  const auto deadline = MonotonicClock::now() + std::chrono::seconds(10);
  int answer = ENOENT;
  while (answer == ENOENT && MonotonicClock::now() < deadline) answer = ibv_start_poll(cq, &attr);
  if (answer == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no completion within ten seconds: " << std::strerror(answer);
}

void send(Endpoint& from, Endpoint& to, const ibv_send_wr& request, size_t bytes = 64) {
  ASSERT_EQ(to.post_receive(1, to.piece(0, bytes + 40)), 0);
  const ibv_sge piece = from.piece(0, bytes);
  ASSERT_EQ(from.post_send(request, {&piece, 1}), 0);
}

uint64_t clock_now(ibv_context* context) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(ibv_query_rt_values_ex(context, &values), 0);
  EXPECT_EQ(values.comp_mask, unsigned{IBV_VALUES_MASK_RAW_CLOCK});
  EXPECT_EQ(values.raw_clock.tv_sec, 0);
  return static_cast<uint64_t>(values.raw_clock.tv_nsec);
}

uint64_t wall_now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

TEST(ExtendedPolling, SaysThatThereIsNothing) {
  Endpoint endpoint({.fields = kAllFields});
  ibv_poll_cq_attr attr{};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ibv_start_poll(endpoint.extended_cq(), &attr), ENOENT);
  attr.comp_mask = 1;
  EXPECT_EQ(ibv_start_poll(endpoint.extended_cq(), &attr), EINVAL);
}

TEST(ExtendedPolling, ShowsWhatAReceiverSees) {
  Pair pair({.fields = kAllFields});
  ibv_send_wr request = send_request(2);
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htobe32(0x12345678);
  send(pair.a, pair.b, request, 100);

  ibv_cq_ex* cq = pair.b.extended_cq();
  ASSERT_TRUE(starts(cq));
  EXPECT_EQ(cq->wr_id, 1u);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(ibv_wc_read_imm_data(cq), htobe32(0x12345678));
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 100u);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), pair.b.qp->qp_num);
  EXPECT_EQ(ibv_wc_read_src_qp(cq), pair.a.qp->qp_num);
  EXPECT_EQ(ibv_wc_read_vendor_err(cq), 0u);
  EXPECT_EQ(ibv_wc_read_slid(cq), 0u);
  EXPECT_EQ(ibv_wc_read_sl(cq), 0);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq), 0);
  EXPECT_EQ(ibv_wc_read_cvlan(cq), 0);
  EXPECT_EQ(ibv_wc_read_flow_tag(cq), 0u);
  ibv_wc_tm_info info;
  ibv_wc_read_tm_info(cq, &info);
  EXPECT_EQ(info.tag, 0u);
  EXPECT_EQ(info.priv, 0u);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);

  cq = pair.a.extended_cq();
  ASSERT_TRUE(starts(cq));
  EXPECT_EQ(cq->wr_id, 2u);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_SEND);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), pair.a.qp->qp_num);
  ibv_end_poll(cq);
}

TEST(ExtendedPolling, ShowsWhereADatagramCameFrom) {
  Pair pair({.type = IBV_QPT_UD, .fields = kAllFields});
  send(pair.a, pair.b, send_request(2), 100);
  ibv_cq_ex* cq = pair.b.extended_cq();
  ASSERT_TRUE(starts(cq));
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), unsigned{IBV_WC_GRH});
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 140u);
  EXPECT_EQ(ibv_wc_read_src_qp(cq), pair.a.qp->qp_num);
  EXPECT_EQ(ibv_wc_read_sl(cq), 2) << "RoCEv2 over IPv4, as the kernel's rxe tells it";
  ibv_end_poll(cq);
}

TEST(ExtendedPolling, TimestampsAreOfTheClockThatIsTold) {
  Pair pair({.fields = kAllFields});
  uint64_t last = clock_now(pair.b.context.get());
  uint64_t last_wall = wall_now();
  for (uint64_t i = 0; i < 3; ++i) {
    send(pair.a, pair.b, send_request(i));
    ibv_cq_ex* cq = pair.b.extended_cq();
    ASSERT_TRUE(starts(cq));
    const uint64_t stamp = ibv_wc_read_completion_ts(cq);
    const uint64_t wall = ibv_wc_read_completion_wallclock_ns(cq);
    ibv_end_poll(cq);
    EXPECT_GT(stamp, last);
    EXPECT_GT(wall, last_wall);
    last = clock_now(pair.b.context.get());
    last_wall = wall_now();
    EXPECT_LT(stamp, last);
    EXPECT_LT(wall, last_wall);
  }
}

TEST(ExtendedPolling, TheDeviceSaysHowItsClockRuns) {
  Context context = open_device();
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
  EXPECT_EQ(attr.completion_timestamp_mask, UINT64_MAX);
  ASSERT_GT(attr.hca_core_clock, 0u);
  // Checks the clock's rate within the error of reading two different clocks.
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t from = clock_now(context.get());
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(20)) {
  }
  const uint64_t ticks = clock_now(context.get()) - from;
  EXPECT_GE(ticks * 1000 / attr.hca_core_clock, 19'900u);
}

TEST(ExtendedPolling, RtValuesThatThereAreNotAreRefused) {
  Context context = open_device();
  ibv_values_ex values{};
  EXPECT_EQ(ibv_query_rt_values_ex(context.get(), &values), 0) << "nothing asked for";
  EXPECT_EQ(values.comp_mask, 0u);
  values.comp_mask = IBV_VALUES_MASK_RESERVED;
  EXPECT_EQ(ibv_query_rt_values_ex(context.get(), &values), EINVAL);
}

// Posting may complete requests at once, into the queue that is being polled. ibv_rc_pingpong does this.
TEST(ExtendedPolling, MayPostBeforeTheBatchEnds) {
  Pair pair({.type = IBV_QPT_UD, .fields = kAllFields});
  const ibv_sge piece = pair.a.piece(0, 64);
  ibv_cq_ex* cq = pair.a.extended_cq();
  ASSERT_EQ(pair.a.post_send(send_request(0), {&piece, 1}), 0);
  ASSERT_TRUE(starts(cq));
  for (uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_EQ(cq->wr_id, i - 1);
    ASSERT_EQ(pair.a.post_send(send_request(i), {&piece, 1}), 0);
    // A datagram completes when it is sent: by us, or by the engine thread that holds the lock.
    while (ibv_next_poll(cq) == ENOENT) std::this_thread::yield();
  }
  ibv_end_poll(cq);
}

TEST(ExtendedPolling, MayDestroyTheQueuePairBeforeTheBatchEnds) {
  Endpoint endpoint({.fields = kAllFields});
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(endpoint.post_receive(i, endpoint.piece(0, 8)), 0);
  endpoint.modify_to(IBV_QPS_ERR);
  ibv_cq_ex* cq = endpoint.extended_cq();
  ASSERT_TRUE(starts(cq));
  EXPECT_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
  endpoint.qp.reset();
  EXPECT_EQ(ibv_next_poll(cq), ENOENT) << "its completions went with it";
  ibv_end_poll(cq);
}

TEST(ExtendedPolling, AndOrdinaryPollingTakeTurns) {
  Endpoint endpoint({.fields = kAllFields});
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(endpoint.post_receive(i, endpoint.piece(0, 8)), 0);
  endpoint.modify_to(IBV_QPS_ERR);
  ibv_cq_ex* cq = endpoint.extended_cq();
  for (uint64_t i = 0; i < 4; i += 2) {
    EXPECT_EQ(endpoint.completion().wr_id, i);
    ASSERT_TRUE(starts(cq));
    EXPECT_EQ(cq->wr_id, i + 1);
    ibv_end_poll(cq);
  }
  EXPECT_TRUE(endpoint.quiet());
}

TEST(ExtendedPolling, GoesOnAfterAnEvent) {
  Pair pair(Options{}, Options{.with_channel = true, .fields = kAllFields});
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
    send(pair.a, pair.b, send_request(2));
    ibv_cq* of = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(pair.b.channel.get(), &of, &cq_context), 0);
    EXPECT_EQ(of, pair.b.cq.get());
    ibv_ack_cq_events(of, 1);
    ibv_poll_cq_attr attr{};
    ASSERT_EQ(ibv_start_poll(pair.b.extended_cq(), &attr), 0);
    ibv_end_poll(pair.b.extended_cq());
    EXPECT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
  }
}

TEST(ExtendedPolling, AQueueInErrorSaysSoWhenItIsDrained) {
  Endpoint endpoint({.cqe = 3, .fields = kAllFields});
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(endpoint.post_receive(i, endpoint.piece(0, 8)), 0);
  endpoint.modify_to(IBV_QPS_ERR);
  ibv_cq_ex* cq = endpoint.extended_cq();
  ASSERT_TRUE(starts(cq));
  for (int i = 1; i < 4; ++i) EXPECT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  ibv_poll_cq_attr poll_attr{};
  EXPECT_EQ(ibv_start_poll(cq, &poll_attr), EIO);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(endpoint.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  ibv_ack_async_event(&event);
}

TEST(ExtendedPolling, AnOverrunThatIsIgnoredIsNoError) {
  Endpoint endpoint({.cqe = 3, .fields = kAllFields, .cq_flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN});
  ibv_qp_attr attr = init_attributes(endpoint.options);
  ASSERT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(endpoint.post_receive(i, endpoint.piece(0, 8)), 0);
  endpoint.modify_to(IBV_QPS_ERR);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(endpoint.completion().wr_id, i);
  EXPECT_TRUE(endpoint.quiet());
}

TEST(ExtendedPolling, OfOneThreadNeedsNoLock) {
  Pair pair({.fields = kAllFields, .cq_flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED});
  for (uint64_t i = 0; i < 100; ++i) {
    send(pair.a, pair.b, send_request(i));
    for (Endpoint* end : {&pair.a, &pair.b}) {
      ASSERT_TRUE(starts(end->extended_cq()));
      EXPECT_EQ(end->extended_cq()->status, IBV_WC_SUCCESS);
      ibv_end_poll(end->extended_cq());
    }
  }
}

// ---- creation

TEST(ExtendedQueues, ReadFunctionsThatWereNotAskedForAreNotThere) {
  Endpoint endpoint({.fields = IBV_WC_EX_WITH_BYTE_LEN});
  const ibv_cq_ex* cq = endpoint.extended_cq();
  EXPECT_NE(cq->start_poll, nullptr);
  EXPECT_NE(cq->next_poll, nullptr);
  EXPECT_NE(cq->end_poll, nullptr);
  EXPECT_NE(cq->read_opcode, nullptr);
  EXPECT_NE(cq->read_vendor_err, nullptr);
  EXPECT_NE(cq->read_wc_flags, nullptr);
  EXPECT_NE(cq->read_byte_len, nullptr);
  EXPECT_EQ(cq->read_imm_data, nullptr);
  EXPECT_EQ(cq->read_completion_ts, nullptr);
  EXPECT_EQ(cq->read_completion_wallclock_ns, nullptr);
  EXPECT_EQ(cq->read_tm_info, nullptr);
}

TEST(ExtendedQueues, WhatBadArgumentsGet) {
  Context context = open_device();
  Context other = open_device();
  Pd pd(ibv_alloc_pd(context.get()));
  Channel channel(ibv_create_comp_channel(context.get()));
  Channel foreign(ibv_create_comp_channel(other.get()));
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(context.get(), &device), 0);
  const auto max_cqe = static_cast<uint32_t>(device.max_cqe);
  const auto vectors = static_cast<uint32_t>(context->num_comp_vectors);
  constexpr uint32_t kFlags = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  struct Case {
    const char* what;
    uint32_t cqe = 1;
    ibv_comp_channel* channel = nullptr;
    uint32_t vector = 0;
    uint64_t fields = 0;
    uint32_t mask = 0;
    uint32_t flags = 0;
    ibv_pd* domain = nullptr;
    int error = 0;  // 0: works
  };
  const Case cases[] = {
      {.what = "the least"},
      {.what = "the most", .cqe = max_cqe, .vector = vectors - 1, .fields = kAllFields},
      {.what = "a channel", .channel = channel.get()},
      {.what = "another context's channel", .channel = foreign.get(), .error = EINVAL},
      {.what = "no entries", .cqe = 0, .error = EINVAL},
      {.what = "too many entries", .cqe = max_cqe + 1, .error = EINVAL},
      {.what = "a vector too many", .vector = vectors, .error = EINVAL},
      {.what = "an unknown field", .fields = kAllFields + 1, .error = EOPNOTSUPP},
      {.what = "an unknown mask", .mask = 1u << 2, .error = EOPNOTSUPP},
      {.what = "one thread", .mask = kFlags, .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED},
      {.what = "ignored overruns", .mask = kFlags, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN},
      {.what = "an unknown flag", .mask = kFlags, .flags = 1u << 2, .error = EOPNOTSUPP},
      {.what = "flags that the mask does not name", .flags = 1u << 2},
      {.what = "no parent domain", .mask = IBV_CQ_INIT_ATTR_MASK_PD, .error = EINVAL},
      {.what = "not a parent domain", .mask = IBV_CQ_INIT_ATTR_MASK_PD, .domain = pd.get(), .error = EINVAL},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    ibv_cq_init_attr_ex attr{};
    attr.cqe = c.cqe;
    attr.channel = c.channel;
    attr.comp_vector = c.vector;
    attr.wc_flags = c.fields;
    attr.comp_mask = c.mask;
    attr.flags = c.flags;
    attr.parent_domain = c.domain;
    errno = 0;
    ibv_cq_ex* cq = ibv_create_cq_ex(context.get(), &attr);
    EXPECT_EQ(cq == nullptr ? errno : 0, c.error);
    if (cq == nullptr) continue;
    EXPECT_GE(cq->cqe, static_cast<int>(c.cqe));
    EXPECT_EQ(cq->channel, c.channel);
    EXPECT_EQ(cq->context, context.get());
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  }
}

}  // namespace
}  // namespace verbena::adapter::testing
