// SPDX-License-Identifier: Apache-2.0
// Many threads at once, for ThreadSanitizer.
#include <atomic>
#include <climits>
#include <cstring>
#include <thread>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "base/random.h"
#include "base/spin_lock.h"

namespace verbena::adapter::testing {
namespace {

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, EachWithAQueuePairOfItsOwn) {
  in_threads(4, [](int number) {
    Pair pair;
    Random random(static_cast<uint64_t>(number));
    for (uint64_t i = 0; i < 60; ++i) {
      const size_t length = 1 + random.below(8000);
      fill_random(pair.a.bytes().first(length), i);
      const ibv_sge from = pair.a.piece(0, length);
      ASSERT_EQ(pair.b.post_receive(i, pair.b.piece(0, length)), 0);
      ASSERT_EQ(pair.a.post_send(send_request(i), {&from, 1}), 0);
      ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
      ASSERT_EQ(pair.b.completion().wr_id, i);
      ASSERT_EQ(std::memcmp(pair.a.buffer(), pair.b.buffer(), length), 0);
    }
  });
}

TEST(Threads, SeveralPostToOneQueuePairWhileOnePolls) {
  constexpr int kPosters = 3;
  constexpr uint64_t kEach = 200;
  Pair pair({.cqe = 1024});
  std::atomic<bool> given_up{false};
  std::vector<int> seen(kPosters * kEach, 0);
  std::thread poller([&] {
    for (uint64_t found = 0; found < kPosters * kEach; ++found) {
      const ibv_wc wc = pair.a.completion();
      if (wc.status != IBV_WC_SUCCESS || wc.wr_id >= seen.size()) {
        given_up = true;
        FAIL() << ibv_wc_status_str(wc.status);
      }
      ++seen[wc.wr_id];
    }
  });
  in_threads(kPosters, [&](int number) {
    const auto base = static_cast<uint64_t>(number) * kEach;
    for (uint64_t i = 0; i < kEach && !given_up; ++i) {
      const ibv_sge piece = pair.a.piece(static_cast<size_t>(number) * 1024, 64 + i);
      const ibv_send_wr request = remote_request(i % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, base + i,
                                                 pair.b.address(), static_cast<uint64_t>(number) * 1024);
      int error;
      while ((error = pair.a.post_send(request, {&piece, 1})) == ENOMEM && !given_up)
        std::this_thread::yield();
      if (error != 0 && !given_up) FAIL() << std::strerror(error);
    }
  });
  poller.join();
  for (const int times : seen) EXPECT_EQ(times, 1);
}

TEST(Threads, SeveralPollOneCompletionQueue) {
  constexpr uint64_t kRequests = 600;
  Pair pair({.cqe = 1024});
  std::atomic<uint64_t> found{0};
  std::atomic<uint64_t> sum{0};
  const auto deadline = MonotonicClock::now() + std::chrono::seconds(20);
  std::thread poster([&] {
    const ibv_sge piece = pair.a.piece(0, 16);
    for (uint64_t i = 0; i < kRequests; ++i) {
      while (pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, i, pair.b.address()), {&piece, 1}) ==
             ENOMEM) {
        if (MonotonicClock::now() > deadline) return;
        std::this_thread::yield();
      }
    }
  });
  in_threads(3, [&](int) {
    while (found < kRequests && MonotonicClock::now() < deadline) {
      ibv_wc wc[4];
      const int some = ibv_poll_cq(pair.a.cq.get(), 4, wc);
      for (int i = 0; i < some; ++i) {
        EXPECT_EQ(wc[i].status, IBV_WC_SUCCESS);
        sum += wc[i].wr_id;
      }
      found += static_cast<uint64_t>(some);
    }
  });
  poster.join();
  EXPECT_EQ(found, kRequests);
  EXPECT_EQ(sum, kRequests * (kRequests - 1) / 2);
}

TEST(Threads, ObjectsComeAndGoBesideTraffic) {
  std::atomic<bool> done{false};
  std::thread traffic([&] {
    Pair pair;
    const ibv_sge piece = pair.a.piece(0, 3000);
    for (uint64_t i = 0; i < 150; ++i) {
      ASSERT_EQ(pair.a.post_send(remote_request(IBV_WR_RDMA_WRITE, i, pair.b.address()), {&piece, 1}), 0);
      ASSERT_EQ(pair.a.completion().status, IBV_WC_SUCCESS);
    }
    done = true;
  });
  in_threads(2, [&](int) {
    do {
      Pair pair({.with_channel = true, .bytes = 4096});
      const ibv_sge piece = pair.a.piece(0, 8);
      ASSERT_EQ(pair.b.post_receive(1, pair.b.piece(0, 8)), 0);
      ASSERT_EQ(pair.a.post_send(send_request(1), {&piece, 1}), 0);  // and is destroyed while it is in flight
    } while (!done);
  });
  traffic.join();
}

TEST(Threads, StateChangesAndQueriesBesidePosting) {
  for (int round = 0; round < 10; ++round) {
    Pair pair({.cqe = 4096});
    std::atomic<uint64_t> posted{0};
    std::atomic<bool> done{false};
    std::thread poster([&] {
      const ibv_sge piece = pair.a.piece(0, 8);
      for (uint64_t i = 0; i < 1000 && !done; ++i) {
        if (pair.a.post_receive(i, piece) == 0) ++posted;
      }
    });
    std::thread asker([&] {
      while (!done) {
        ibv_port_attr port{};
        EXPECT_EQ(ibv_query_port(pair.a.context.get(), 1, &port), 0);
        std::this_thread::yield();
      }
    });
    while (posted < 20) std::this_thread::yield();
    pair.a.modify_to(IBV_QPS_ERR);
    // Every receive posted before or after the change of state is flushed; none is lost in between.
    uint64_t flushed = 0;
    for (int i = 0; i < 64; ++i, ++flushed) {
      if (pair.a.completion().status != IBV_WC_WR_FLUSH_ERR) break;
    }
    EXPECT_EQ(flushed, 64u);
    done = true;
    poster.join();
    asker.join();
    while (flushed < posted && pair.a.completion().status == IBV_WC_WR_FLUSH_ERR) ++flushed;
    EXPECT_EQ(flushed, posted);
    EXPECT_TRUE(pair.a.quiet());
  }
}

// A receive posted while the QP fails is flushed, either by the posting thread or by the failing one.
TEST(Threads, EachReceivePostedWhileTheQueuePairFailsIsFlushed) {
  constexpr int kRounds = 400;
  constexpr uint64_t kReceives = 16;
  Pair pair({.cqe = 1024});
  Endpoint& endpoint = pair.a;
  std::atomic<int> round{0};
  std::atomic<uint64_t> posted{0};
  std::thread poster([&] {
    const ibv_sge piece = endpoint.piece(0, 8);
    for (int seen = 0; seen < kRounds; ++seen) {
      while (round <= seen) std::this_thread::yield();
      if (round == INT_MAX) return;
      for (uint64_t i = 0; i < kReceives; ++i) EXPECT_EQ(endpoint.post_receive(i, piece), 0);
      posted += kReceives;
    }
  });
  uint64_t flushed = 0;
  for (int now = 1; now <= kRounds && !HasFailure(); ++now) {
    endpoint.modify_to(IBV_QPS_RESET);
    ibv_qp_attr attr = init_attributes(endpoint.options);
    EXPECT_EQ(ibv_modify_qp(endpoint.qp.get(), &attr, init_mask(IBV_QPT_RC)), 0);
    round = now;
    for (int spins = now % 40; spins > 0; --spins) cpu_relax();
    endpoint.modify_to(IBV_QPS_ERR);
    // From here on the only verb is polling: a request that was not flushed would stay in the queue.
    for (; flushed < kReceives * static_cast<uint64_t>(now) && !HasFailure(); ++flushed) {
      EXPECT_EQ(endpoint.completion().status, IBV_WC_WR_FLUSH_ERR);
    }
    while (posted < flushed && !HasFailure()) std::this_thread::yield();
  }
  if (HasFailure()) round = INT_MAX;
  poster.join();
  EXPECT_TRUE(endpoint.quiet());
}

}  // namespace
}  // namespace verbena::adapter::testing
