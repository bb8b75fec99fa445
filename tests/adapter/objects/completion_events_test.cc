// SPDX-License-Identifier: Apache-2.0
// Completion channels: waiting for events instead of polling.
#include <atomic>
#include <thread>

#include <fcntl.h>
#include <sys/epoll.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/events.h"
#include "base/watched_thread.h"

namespace verbena::adapter::testing {
namespace {

void make_nonblocking(int fd) {
  ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

void take_event(Endpoint& endpoint) {
  ASSERT_EQ(get_event(endpoint), 0);
}

class CompletionEvents : public ::testing::Test {
 protected:
  Pair pair{Options{}, Options{.with_channel = true}};
  Endpoint& a = pair.a;
  Endpoint& b = pair.b;
  int fd() { return b.channel->fd; }
};

TEST_F(CompletionEvents, ArmingMakesOneEventOfTheNextCompletion) {
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  EXPECT_FALSE(readable(fd()));
  // No thread polls b, so the engine thread receives.
  send(a, b);
  EXPECT_TRUE(readable(fd(), kPatienceMs));
  take_event(b);
  EXPECT_FALSE(readable(fd()));
  EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
  // The CQ is not armed again, so another completion makes no event.
  EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
  send(a, b);
  EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(readable(fd()));
}

// A program (UCX) that arms and sleeps without another poll gets the event of a waiting completion, as with
// mlx5.
TEST_F(CompletionEvents, ArmingWhileACompletionWaitsMakesOneAtOnce) {
  send(a, b);
  EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  ASSERT_TRUE(readable(fd(), kPatienceMs));
  take_event(b);
  EXPECT_FALSE(readable(fd())) << "one event for one request";
  // The completion still waits, but it is not a solicited one.
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 1), 0);
  EXPECT_FALSE(readable(fd()));
  EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
}

TEST_F(CompletionEvents, NonblockingChannelsSayTryAgain) {
  make_nonblocking(fd());
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_get_cq_event(b.channel.get(), &cq, &cq_context), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(CompletionEvents, AThreadThatWaitsIsWoken) {
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  std::thread waiter([&] { take_event(b); });
  send(a, b);
  waiter.join();
  EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
}

TEST_F(CompletionEvents, ADuplicateOfTheDescriptorWorksInEpoll) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  const UniqueFd copy(::dup(fd()));
  epoll_event interest{EPOLLIN, {.u32 = 7}};
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, copy.get(), &interest), 0);
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
  send(a, b);
  epoll_event event{};
  ASSERT_EQ(::epoll_wait(epoll.get(), &event, 1, kPatienceMs), 1);
  EXPECT_EQ(event.data.u32, 7u);
  take_event(b);
}

TEST_F(CompletionEvents, SolicitedOnlyMeansThoseAndErrors) {
  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 1), 0);
  send(a, b);
  EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(readable(fd()));
  send(a, b, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  EXPECT_TRUE(readable(fd(), kPatienceMs));
  take_event(b);

  ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 1), 0);
  ASSERT_EQ(b.post_receive(3, b.piece(0, 8)), 0);
  b.modify_to(IBV_QPS_ERR);
  EXPECT_TRUE(readable(fd(), kPatienceMs));
  take_event(b);
}

TEST_F(CompletionEvents, PingPongWithoutOnePollInVain) {
  Pair events({.with_channel = true});
  play(events.a, events.b, 200);
}

TEST_F(CompletionEvents, GoWithTheirCompletionQueue) {
  Channel channel(ibv_create_comp_channel(a.context.get()));
  ibv_cq* cq = ibv_create_cq(a.context.get(), 16, nullptr, channel.get(), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  Pd pd(ibv_alloc_pd(a.context.get()));
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap.max_recv_wr = 1;
  init.qp_type = IBV_QPT_RC;
  Qp qp(ibv_create_qp(pd.get(), &init));
  ibv_qp_attr attr = init_attributes({});
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  ibv_recv_wr request{};
  ASSERT_EQ(ibv_post_recv(qp.get(), &request, nullptr), 0);
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
  EXPECT_TRUE(readable(channel->fd));
  qp.reset();
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_FALSE(readable(channel->fd));
}

TEST_F(CompletionEvents, DestroyingTheQueueWaitsForThoseThatWereTaken) {
  auto endpoint = std::make_unique<Endpoint>(Options{.with_channel = true});
  ibv_qp_attr attr = init_attributes(endpoint->options);
  ASSERT_EQ(ibv_modify_qp(endpoint->qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
  ASSERT_EQ(ibv_req_notify_cq(endpoint->cq.get(), 0), 0);
  ASSERT_EQ(endpoint->post_receive(1, endpoint->piece(0, 8)), 0);
  endpoint->modify_to(IBV_QPS_ERR);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(endpoint->channel.get(), &cq, &cq_context), 0);
  endpoint->qp.reset();
  test::WatchedThread destroyer([&] { endpoint->cq.reset(); });
  EXPECT_TRUE(destroyer.falls_asleep());
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
}

TEST_F(CompletionEvents, ManyAreAcknowledgedAtOnce) {
  constexpr unsigned kEvents = 5;
  for (unsigned i = 0; i < kEvents; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(b.cq.get(), 0), 0);
    send(a, b);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(b.channel.get(), &cq, &cq_context), 0);
    EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
    EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
  }
  b.qp.reset();
  ibv_cq* cq = b.cq.get();
  test::WatchedThread destroyer([&] { b.cq.reset(); });
  EXPECT_TRUE(destroyer.falls_asleep());
  ibv_ack_cq_events(cq, kEvents - 1);
  EXPECT_TRUE(destroyer.falls_asleep()) << "one is missing";
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
}

TEST_F(CompletionEvents, OneChannelServesManyQueuesInTurn) {
  Context context = open_device();
  Channel channel(ibv_create_comp_channel(context.get()));
  Pd pd(ibv_alloc_pd(context.get()));
  std::vector<Cq> cqs;
  std::vector<Qp> qps;
  for (int i = 0; i < 3; ++i) {
    cqs.emplace_back(ibv_create_cq(context.get(), 4, nullptr, channel.get(), i));
    ASSERT_EQ(ibv_req_notify_cq(cqs.back().get(), 0), 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cqs.back().get();
    init.cap.max_recv_wr = 1;
    init.qp_type = IBV_QPT_RC;
    qps.emplace_back(ibv_create_qp(pd.get(), &init));
    ibv_qp_attr attr = init_attributes({});
    ASSERT_EQ(ibv_modify_qp(qps.back().get(), &attr, init_mask(IBV_QPT_RC)), 0);
    ibv_recv_wr request{};
    ASSERT_EQ(ibv_post_recv(qps.back().get(), &request, nullptr), 0);
  }
  for (const int i : {2, 0, 1}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qps[static_cast<size_t>(i)].get(), &attr, IBV_QP_STATE), 0);
  }
  for (const int i : {2, 0, 1}) {
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel.get(), &cq, &cq_context), 0);
    EXPECT_EQ(cq, cqs[static_cast<size_t>(i)].get());
    ibv_ack_cq_events(cq, 1);
  }
}

}  // namespace
}  // namespace verbena::adapter::testing
