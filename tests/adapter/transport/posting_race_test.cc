// SPDX-License-Identifier: Apache-2.0
// Receives posted while their QP fails, by a thread that the failure does not wait for.
#include <atomic>
#include <mutex>
#include <thread>

#include "adapter/transport/support/endpoint.h"
#include "base/spin_lock.h"

namespace verbena::transport {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr uint32_t kRounds = 200;
#else
constexpr uint32_t kRounds = 500;
#endif

// Keeps two threads in step: neither begins a round before the other.
class Step {
 public:
  void arrive(uint32_t round) {
    for (arrived_.fetch_add(1); arrived_.load() < 2 * round;) cpu_relax_or_yield();
  }

 private:
  void cpu_relax_or_yield() {
    if (++spins_ % 256 == 0) {
      std::this_thread::yield();
    } else {
      cpu_relax();
    }
  }
  std::atomic<uint32_t> arrived_{0};
  static thread_local uint32_t spins_;
};
thread_local uint32_t Step::spins_ = 0;

// Posts as ibv_post_recv() does. True if the shard must be woken.
bool post_receive(QueuePair& qp, uint64_t wr_id) {
  const std::lock_guard guard(qp.recv_lock());
  if (qp.state() == IBV_QPS_RESET) return false;
  queues::RecvWqe* wqe = qp.recv_queue().reserve();
  if (wqe == nullptr) return false;
  wqe->wr_id = wr_id;
  wqe->num_sge = 0;
  return qp.publish_receives(1);
}

TEST(PostingRace, EachReceivePublishedWhileTheQueuePairFailsIsFlushedOnce) {
  Endpoint<RcQueuePair> e{{.recv_requests = 8}};
  QueuePair& qp = *e.qp;
  SpinLock shard;
  Step begin;
  Step end;
  std::thread poster([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      begin.arrive(round);
      for (uint32_t spins = round % 29; spins > 0; --spins) cpu_relax();
      for (uint64_t i = 0; i < 2; ++i) {
        if (!post_receive(qp, i)) continue;
        const std::lock_guard guard(shard);
        e.transmit();
      }
      end.arrive(round);
    }
  });
  uint32_t wrong = 0;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    {
      const std::lock_guard guard(shard);
      qp.enter(IBV_QPS_RESET);
      qp.enter(IBV_QPS_INIT);
    }
    begin.arrive(round);
    for (uint32_t spins = round % 31; spins > 0; --spins) cpu_relax();
    {
      const std::lock_guard guard(shard);
      qp.enter(IBV_QPS_ERR);
    }
    end.arrive(round);
    ibv_wc wc[8];
    wrong += e.recv_cq->poll(8, wc) != 2;
  }
  poster.join();
  EXPECT_EQ(wrong, 0u) << "of " << kRounds << " rounds";
}

}  // namespace
}  // namespace verbena::transport
