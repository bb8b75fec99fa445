// SPDX-License-Identifier: Apache-2.0
// Threads that are cancelled (pthread_cancel(3)). As with rdma-core, only verbs that wait for an event are
// cancellation points. A thread cancelled in another verb would leave our locks locked.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <pthread.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/events.h"
#include "adapter/objects/support/services.h"
#include "base/cancelled_thread.h"
#include "base/seed.h"

namespace verbena::adapter::testing {
namespace {

void exchange(Endpoint& a, Endpoint& b) {
  send(a, b);
  EXPECT_EQ(a.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.completion().status, IBV_WC_SUCCESS);
}

// Runs each step in a thread that has already been cancelled. If a step left a lock locked, a later step
// would hang.
class CancelledLife {
 public:
  void run() {
    make();
    use();
    make_rarer_things();
    destroy();
    Pair pair;
    exchange(pair.a, pair.b);
  }

 private:
  template <class Verb>
  static void step(const char* name, Verb verb) {
    EXPECT_TRUE(test::comes_back_cancelled(verb)) << name << " ended the thread";
  }

  void make() {
    step("ibv_get_device_list", [] {
      int count = 0;
      ibv_device** const list = ibv_get_device_list(&count);
      EXPECT_GT(count, 0);
      ibv_free_device_list(list);
    });
    // Each endpoint is made by a new thread, so each gets a shard of its own.
    step("a context and its objects",
         [&] { a_ = std::make_unique<Endpoint>(Options{.with_channel = true}); });
    step("those of another shard", [&] { b_ = std::make_unique<Endpoint>(Options{.with_channel = true}); });
    step("ibv_modify_qp", [&] { a_->connect(b_->address()); });
    step("ibv_modify_qp", [&] { b_->connect(a_->address()); });
  }

  void use() {
    step("a message", [&] { exchange(*a_, *b_); });
    step("ibv_req_notify_cq", [&] { EXPECT_EQ(ibv_req_notify_cq(b_->cq.get(), 0), 0); });
    step("an event's post", [&] { exchange(*a_, *b_); });
    step("ibv_query_*", [&] {
      ibv_device_attr device{};
      EXPECT_EQ(ibv_query_device(a_->context.get(), &device), 0);
      ibv_port_attr port{};
      EXPECT_EQ(ibv_query_port(a_->context.get(), 1, &port), 0);
      EXPECT_EQ(a_->state(), IBV_QPS_RTS);
    });
    step("ibv_reg_mr, ibv_dereg_mr", [&] {
      std::vector<std::byte> memory(1 << 20);
      EXPECT_NE(Mr(ibv_reg_mr(a_->pd.get(), memory.data(), memory.size(), kAllAccess)), nullptr);
    });
  }

  void make_rarer_things() {
    step("device memory", [&] {
      ibv_alloc_dm_attr attr{};
      attr.length = 4096;
      ibv_dm* const memory = ibv_alloc_dm(a_->context.get(), &attr);
      ASSERT_NE(memory, nullptr);
      EXPECT_EQ(ibv_free_dm(memory), 0);
    });
    step("an XRC domain", [&] {
      ibv_xrcd_init_attr attr{};
      attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
      attr.fd = -1;
      attr.oflags = O_CREAT;
      const Xrcd domain(ibv_open_xrcd(a_->context.get(), &attr));
      EXPECT_NE(domain, nullptr);
    });
    step("a multicast group", [&] {
      Endpoint datagrams({.type = IBV_QPT_UD});
      datagrams.connect(datagrams.address());
      ibv_gid group{};
      group.raw[10] = group.raw[11] = 0xff;
      const std::array<uint8_t, 4> address{239, 1, 2, 3};
      std::ranges::copy(address, group.raw + 12);
      EXPECT_EQ(ibv_attach_mcast(datagrams.qp.get(), &group, 0), 0);
      EXPECT_EQ(ibv_detach_mcast(datagrams.qp.get(), &group, 0), 0);
    });
  }

  void destroy() {
    step("the end of a context", [&] { a_.reset(); });
    step("the end of the engine", [&] { b_.reset(); });
  }

  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
};

TEST(Cancellation, VerbsAreNoCancellationPoints) {
  isolated([] { CancelledLife().run(); });
}

// Threads that call verbs on shared objects, cancelled at random moments. They end between two verbs, so that
// no lock stays locked and no object half made.
TEST(Cancellation, ThreadsEndedInTheMidstOfVerbsLeaveNothingLocked) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers do not know how a cancelled thread unwinds";
#endif
  isolated([] {
    const uint64_t seed = test::seed();
    std::mt19937 random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pair pair({.with_channel = true});
    const auto live = [&](std::atomic<int>& rounds) {
      for (;;) {
        int before;
        ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
        ::pthread_testcancel();
        ibv_comp_channel* const channel = ibv_create_comp_channel(pair.a.context.get());
        ibv_mr* const mr = ibv_reg_mr(pair.a.pd.get(), pair.a.buffer(), 4096, IBV_ACCESS_LOCAL_WRITE);
        ibv_cq* const cq = ibv_create_cq(pair.a.context.get(), 16, nullptr, channel, 0);
        const bool is_sound = channel != nullptr && mr != nullptr && cq != nullptr &&
                              ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 &&
                              ibv_destroy_comp_channel(channel) == 0;
        if (!is_sound) std::abort();
        ++rounds;
      }
    };
    for (int i = 0; i < 100; ++i) {
      std::atomic<int> rounds{0};
      std::thread one([&] { live(rounds); });
      std::thread other([&] { live(rounds); });
      const int wanted = static_cast<int>(random() % 20);
      while (rounds < wanted) exchange(pair.a, pair.b);
      ::pthread_cancel(one.native_handle());
      ::pthread_cancel(other.native_handle());
      one.join();
      other.join();
    }
    exchange(pair.a, pair.b);
  });
}

// A verb in which a thread may sleep indefinitely remains a cancellation point.
TEST(Cancellation, WaitingForAnAsynchronousEventIsACancellationPoint) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers do not know how a cancelled thread unwinds";
#endif
  Context context = open_device();
  EXPECT_FALSE(test::comes_back_cancelled([&] {
    ibv_async_event event{};
    ibv_get_async_event(context.get(), &event);
  }));
}

TEST(Cancellation, WaitingForACompletionEventIsACancellationPoint) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers do not know how a cancelled thread unwinds";
#endif
  Pair pair({.with_channel = true});
  exchange(pair.a, pair.b);
  EXPECT_FALSE(test::comes_back_cancelled([&] { get_event(pair.a); }));
  exchange(pair.a, pair.b);
}

}  // namespace
}  // namespace verbena::adapter::testing
