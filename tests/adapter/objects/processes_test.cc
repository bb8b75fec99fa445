// SPDX-License-Identifier: Apache-2.0
// Two processes, and the effects of one dying, exiting or forking on the other.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"
#include "base/forked_children.h"
#include "base/random.h"
#include "base/spin_lock.h"
#include "base/time.h"

namespace verbena::adapter::testing {
namespace {

// Exchanges addresses with the process at the other end of `line`, and connects.
void join(Endpoint& endpoint, Line& line) {
  line.tell(endpoint.address());
  endpoint.connect(line.hear<Address>());
}

// A target that lets its peer access its memory, and calls no verb meanwhile.
const HelperBody target("target", [](Line& line) {
  Endpoint endpoint;
  join(endpoint, line);
  line.await_end();
});

// Sends every received message back, until the line ends.
void mirror(Line& line, ibv_qp_type type) {
  Endpoint endpoint({.type = type});
  const size_t skip = type == IBV_QPT_UD ? 40 : 0;
  join(endpoint, line);
  for (size_t i = 0; i < 8; ++i) ASSERT_EQ(endpoint.post_receive(i, endpoint.piece(i * 8192, 8192)), 0);
  line.tell(true);
  pollfd end{line.fd(), POLLIN, 0};
  while (::poll(&end, 1, 0) == 0) {
    ibv_wc wc;
    if (ibv_poll_cq(endpoint.cq.get(), 1, &wc) != 1) continue;
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode != IBV_WC_RECV) {  // a completed answer
      ASSERT_EQ(endpoint.post_receive(wc.wr_id, endpoint.piece(wc.wr_id * 8192, 8192)), 0);
      continue;
    }
    const ibv_sge piece = endpoint.piece(wc.wr_id * 8192 + skip, wc.byte_len - skip);
    ASSERT_EQ(endpoint.post_send(send_request(wc.wr_id), {&piece, 1}), 0);
  }
}
const HelperBody rc_mirror("rc-mirror", [](Line& line) { mirror(line, IBV_QPT_RC); });
const HelperBody ud_mirror("ud-mirror", [](Line& line) { mirror(line, IBV_QPT_UD); });

// Writes to its peer endlessly; another thread calls exit() meanwhile.
const HelperBody blaster("blaster", [](Line& line) {
  auto* endpoint = new Endpoint;
  join(*endpoint, line);
  line.tell(true);
  std::thread([endpoint] {
    const ibv_sge piece = endpoint->piece(0, 1 << 15);
    for (;;) {
      ibv_wc wc;
      (void)endpoint->post_send(remote_request(IBV_WR_RDMA_WRITE, 1, endpoint->peer), {&piece, 1});
      if (ibv_poll_cq(endpoint->cq.get(), 1, &wc) < 0) return;
    }
  }).detach();
  line.hear<bool>();
  std::exit(::testing::Test::HasFailure() ? 1 : 0);  // NOLINT(concurrency-mt-unsafe): that is the test
});

TEST(Processes, OneSidedOperationsNeedNoVerbOfTheTarget) {
  Helper helper = Helper::start("target");
  Endpoint endpoint;
  join(endpoint, helper.line());
  Random random(11);
  for (uint64_t i = 0; i < 40; ++i) {
    const size_t length = 1 + random.below(30'000);
    const size_t offset = random.below(30'000);
    fill_random(endpoint.bytes().first(length), i);
    const ibv_sge there = endpoint.piece(0, length);
    const ibv_sge back = endpoint.piece(1 << 15, length);
    ASSERT_EQ(
        endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, 2 * i, endpoint.peer, offset), {&there, 1}), 0);
    ASSERT_EQ(
        endpoint.post_send(remote_request(IBV_WR_RDMA_READ, 2 * i + 1, endpoint.peer, offset), {&back, 1}),
        0);
    for (uint64_t expected : {2 * i, 2 * i + 1}) {
      const ibv_wc wc = endpoint.completion();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, expected);
    }
    ASSERT_EQ(std::memcmp(endpoint.buffer(), endpoint.buffer() + (1 << 15), length), 0);
  }
  const ibv_sge old = endpoint.piece(0, 8);
  ibv_send_wr add = remote_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, endpoint.peer);
  add.wr.atomic.compare_add = 1;
  ASSERT_EQ(endpoint.post_send(add, {&old, 1}), 0);
  EXPECT_EQ(endpoint.completion().status, IBV_WC_SUCCESS);
}

class Mirrored : public ::testing::TestWithParam<ibv_qp_type> {};

TEST_P(Mirrored, EveryByteComesBack) {
  const bool datagrams = GetParam() == IBV_QPT_UD;
  Helper helper = Helper::start(datagrams ? "ud-mirror" : "rc-mirror");
  Endpoint endpoint({.type = GetParam()});
  join(endpoint, helper.line());
  helper.line().hear<bool>();
  const size_t skip = datagrams ? 40 : 0;
  Random random(5);
  for (uint64_t i = 0; i < 100; ++i) {
    const size_t length = random.below(datagrams ? 4000 : 8192);
    fill_random(endpoint.bytes().first(length), i);
    const ibv_sge there = endpoint.piece(0, length);
    ASSERT_EQ(endpoint.post_receive(1, endpoint.piece(1 << 15, 8192 + skip)), 0);
    ASSERT_EQ(endpoint.post_send(send_request(2), {&there, 1}), 0);
    for (int j = 0; j < 2; ++j) {
      const ibv_wc wc = endpoint.completion();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.wr_id == 1) {
        ASSERT_EQ(wc.byte_len, length + skip);
      }
    }
    ASSERT_EQ(std::memcmp(endpoint.buffer(), endpoint.buffer() + (1 << 15) + skip, length), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Service, Mirrored, ::testing::Values(IBV_QPT_RC, IBV_QPT_UD),
                         [](const auto& type) { return type.param == IBV_QPT_RC ? "Rc" : "Ud"; });

TEST(Processes, AKilledPeerIsNoticedPromptly) {
  Helper helper = Helper::start("target");
  Endpoint endpoint({.timeout = 8, .retries = 3});
  join(endpoint, helper.line());
  const ibv_sge piece = endpoint.piece(0, 4096);
  ASSERT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, endpoint.peer), {&piece, 1}), 0);
  ASSERT_EQ(endpoint.completion().status, IBV_WC_SUCCESS);
  helper.kill(SIGKILL);
  helper.wait();
  const TimePoint killed = MonotonicClock::now();
  for (uint64_t i = 2; i < 6; ++i) {
    ASSERT_EQ(endpoint.post_send(remote_request(IBV_WR_RDMA_WRITE, i, endpoint.peer), {&piece, 1}), 0);
  }
  ASSERT_EQ(endpoint.post_receive(6, endpoint.piece(0, 8)), 0);
  ibv_wc wc = endpoint.completion();
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.wr_id, 2u);
  for (uint64_t i = 3; i < 7; ++i) {
    wc = endpoint.completion();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, i);
  }
  EXPECT_LT(MonotonicClock::now() - killed, std::chrono::seconds(3));
  EXPECT_EQ(endpoint.state(), IBV_QPS_ERR);
}

TEST(Processes, ExitInTheMidstOfTrafficHarmsNobody) {
  for (int round = 0; round < 3; ++round) {
    Helper helper = Helper::start("blaster");
    Endpoint endpoint;
    join(endpoint, helper.line());
    helper.line().hear<bool>();
    ibv_wc wc;
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(ibv_poll_cq(endpoint.cq.get(), 1, &wc), 0);
    helper.line().tell(true);
    EXPECT_EQ(helper.wait(), 0);
  }
}

// ---- fork()

bool in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

void exchange(Pair& pair) {
  const ibv_sge piece = pair.a.piece(0, 3000);
  ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1}), 0);
  ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
}

TEST(Fork, AChildMayExitAtOnce) {
  Pair pair;
  exchange(pair);
  EXPECT_TRUE(in_child([] {}));
  exchange(pair);
}

TEST(Fork, AChildMayDestroyWhatItInheritedAndTheParentKeepsIt) {
  auto pair = std::make_unique<Pair>(Options{.with_channel = true});
  exchange(*pair);
  // The child must not consume this pending event.
  ASSERT_EQ(ibv_req_notify_cq(pair->b.cq.get(), 0), 0);
  ASSERT_EQ(pair->b.post_receive(1, pair->b.piece(0, 8)), 0);
  const ibv_sge piece = pair->a.piece(0, 8);
  ASSERT_EQ(pair->a.post_send(send_request(2), {&piece, 1}), 0);
  ASSERT_EQ(pair->a.completion().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(in_child([&] { pair.reset(); }));
  EXPECT_TRUE(in_child([&] {  // closes only the contexts
    for (Endpoint* endpoint : {&pair->a, &pair->b})
      EXPECT_EQ(ibv_close_device(endpoint->context.release()), 0);
  }));
  pollfd entry{pair->b.channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 0), 1);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(pair->b.channel.get(), &cq, &cq_context), 0);
  EXPECT_EQ(cq, pair->b.cq.get());
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(pair->b.completion().status, IBV_WC_SUCCESS);
  exchange(*pair);
}

TEST(Fork, AChildMayDestroyWhatItInheritedWhileAThreadOfItsParentMakesMore) {
  Endpoint endpoint;
  char bytes[64];
  test::expect_in_children_forked_while(
      [&] {
        ibv_mr* more = ibv_reg_mr(endpoint.pd.get(), bytes, sizeof bytes, 0);
        EXPECT_NE(more, nullptr);
        EXPECT_EQ(ibv_dereg_mr(more), 0);
      },
      [&] { return ibv_dereg_mr(endpoint.mr.release()) == 0; });
}

TEST(Fork, AChildThatUsesWhatItInheritedHarmsNobody) {
  Pair pair;
  exchange(pair);
  EXPECT_TRUE(in_child([&] {
    const ibv_sge piece = pair.a.piece(0, 8);
    (void)pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, 1, pair.b.address()), {&piece, 1});
    ibv_wc wc;
    for (int i = 0; i < 10; ++i) (void)ibv_poll_cq(pair.a.cq.get(), 1, &wc);
    (void)ibv_req_notify_cq(pair.a.cq.get(), 0);
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(pair.a.context.get(), 1, &port), 0);
    pair.a.modify_to(IBV_QPS_ERR);
  }));
  exchange(pair);
}

TEST(Fork, AChildMayOpenTheDeviceAnew) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer knows no threads in a child of a process with threads";
#endif
  Pair pair;
  exchange(pair);
  EXPECT_TRUE(in_child([&] {
    Pair fresh;
    exchange(fresh);
    EXPECT_NE(fresh.a.qp->qp_num, pair.a.qp->qp_num);
  }));
  exchange(pair);
}

// The child must not find a lock held by a thread of its parent.
TEST(Fork, AChildMayAskForDevicesWhileAThreadOfItsParentDoes) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer knows no threads in a child of a process with threads";
#endif
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) ibv_free_device_list(ibv_get_device_list(nullptr));
  });
  bool all_well = true;
  for (int i = 0; i < 300 && all_well; ++i) {
    all_well = in_child([] {
      ::alarm(10);  // ends a child that hangs
      ibv_device** const list = ibv_get_device_list(nullptr);
      EXPECT_NE(list, nullptr);
      ibv_free_device_list(list);
    });
  }
  done = true;
  other.join();
  EXPECT_TRUE(all_well);
}

void ask_for_devices() {
  ibv_device** const list = ibv_get_device_list(nullptr);
  EXPECT_NE(list, nullptr);
  ibv_free_device_list(list);
}

// The first call makes the process-wide objects, so each attempt has a process of its own.
TEST(Fork, AChildMayBeMadeInTheMidstOfTheVeryFirstCall) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own allocator is not ready for a fork in its midst";
#endif
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(in_child([&] {
      std::atomic<bool> begins{false};
      std::thread first([&] {
        begins = true;
        ask_for_devices();
      });
      while (!begins) cpu_relax();
      for (const TimePoint then = MonotonicClock::now() + std::chrono::microseconds(i);
           MonotonicClock::now() < then;) {
      }
      EXPECT_TRUE(in_child([&] {
        ::alarm(10);  // ends a child that hangs
        ask_for_devices();
      }));
      first.join();
    })) << "after "
        << i << " us";
  }
}

// Runs once, as the first fork handler.
std::function<void()> before_fork;

// The first call begins after fork() has collected its handlers, so the library's own handlers do not run in
// the child.
TEST(Fork, AChildMayBeMadeThoughTheVeryFirstCallComesInBetween) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own allocator is not ready for a fork in its midst";
#endif
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(in_child([&] {
      ::pthread_atfork(
          [] {
            if (before_fork) std::exchange(before_fork, nullptr)();
          },
          nullptr, nullptr);
      std::thread first;
      before_fork = [&] {
        std::atomic<bool> begins{false};
        first = std::thread([&] {
          begins = true;
          ask_for_devices();
        });
        while (!begins) cpu_relax();
        for (const TimePoint then = MonotonicClock::now() + std::chrono::microseconds(10 * i);
             MonotonicClock::now() < then;) {
        }
      };
      EXPECT_TRUE(in_child([&] {
        ::alarm(10);  // ends a child that hangs
        ask_for_devices();
      }));
      first.join();
    })) << "after "
        << 10 * i << " us";
  }
}

TEST(Fork, ChildrenOfChildrenToo) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer knows no threads in a child of a process with threads";
#endif
  Pair pair;
  EXPECT_TRUE(in_child([&] {
    Pair fresh;
    exchange(fresh);
    EXPECT_TRUE(in_child([&] {
      Pair freshest;
      exchange(freshest);
    }));
    exchange(fresh);
  }));
  exchange(pair);
}

}  // namespace
}  // namespace verbena::adapter::testing
