// SPDX-License-Identifier: Apache-2.0
// The costs of two processes that are connected by many idle QPs.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"
#include "adapter/objects/support/route.h"
#include "adapter/objects/support/services.h"

namespace verbena::adapter::testing {
namespace {

constexpr uint32_t kQps = 1000;
constexpr auto kIdle = std::chrono::seconds(3);
// The processor time of all threads of a process in that time. Timers set for the last requests expire once,
// and find nothing to do.
constexpr auto kMaxCpu = std::chrono::milliseconds(5);

// The processor time in 200 ms. The thread sanitizer's own thread runs ten times a second.
#ifdef __SANITIZE_THREAD__
constexpr auto kAtRest = std::chrono::microseconds(300);
#else
constexpr auto kAtRest = std::chrono::microseconds(100);
#endif

struct Numbers {
  uint32_t qpns[kQps];
};

std::chrono::microseconds processor_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

// Waits until timers that were set for the last requests have expired.
bool comes_to_rest() {
  return eventually([] {
    const auto before = processor_time();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // longer than the timers
    return processor_time() - before < kAtRest;
  });
}

size_t private_bytes() {
  std::ifstream lines("/proc/self/smaps_rollup");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Private_Dirty:")) return std::strtoul(line.c_str() + 14, nullptr, 10) << 10;
  }
  return 0;
}

struct Many {
  Many() {
    const size_t before = private_bytes();
    for (uint32_t i = 0; i < kQps; ++i) {
      qps.push_back(bench.make_qp(IBV_QPT_RC));
      if (qps.back() == nullptr) throw std::runtime_error("no QP");
    }
    bytes = private_bytes() - before;
  }
  void join(Line& line) {
    const auto own = std::make_unique<Numbers>();
    for (uint32_t i = 0; i < kQps; ++i) own->qpns[i] = qps[i]->qp_num;
    line.tell(*own);
    const auto theirs = std::make_unique<Numbers>(line.hear<Numbers>());
    for (uint32_t i = 0; i < kQps; ++i) bench.connect(qps[i].get(), theirs->qpns[i]);
    // Both ends are connected when each has heard from the other.
    line.tell(true);
    line.hear<bool>();
  }
  // Sends a WRITE on each QP, so that none is new.
  void use(uint64_t address, uint32_t rkey) {
    for (const Qp& qp : qps) {
      ibv_send_wr request = send_request(1);
      request.opcode = IBV_WR_RDMA_WRITE;
      request.wr.rdma.remote_addr = address;
      request.wr.rdma.rkey = rkey;
      ASSERT_EQ(bench.post(qp.get(), request, bench.piece(0, 64)), 0);
      ASSERT_EQ(next_completion(bench.cq.get()).status, IBV_WC_SUCCESS);
    }
  }

  Bench bench;
  std::vector<Qp> qps;
  size_t bytes = 0;
};

struct Where {
  uint64_t address;
  uint32_t rkey;
};

const HelperBody idle("idle", [](Line& line) {
  Many many;
  many.join(line);
  line.tell(Where{reinterpret_cast<uintptr_t>(many.bench.buffer.data()), many.bench.mr->rkey});
  line.hear<bool>();
  ASSERT_TRUE(comes_to_rest());
  const auto before = processor_time();
  line.tell(true);
  line.hear<bool>();  // after the measured time
  line.tell(processor_time() - before);
  line.await_end();
});

class Idle : public ::testing::TestWithParam<Route> {
 protected:
  Idle() { use_route(GetParam()); }
  ~Idle() override { use_route(usual_route()); }
};

TEST_P(Idle, AThousandQpsTakeNoProcessorTime) {
  Helper helper = Helper::start("idle");
  Many many;
  many.join(helper.line());
  const auto where = helper.line().hear<Where>();
  many.use(where.address, where.rkey);
  ASSERT_TRUE(all_take(GetParam(), ::getpid(), kQps));
  ASSERT_TRUE(comes_to_rest());
  helper.line().tell(true);
  helper.line().hear<bool>();
  const auto before = processor_time();
  std::this_thread::sleep_for(kIdle);  // the measured time
  const auto here = processor_time() - before;
  helper.line().tell(true);
  const auto there = helper.line().hear<std::chrono::microseconds>();
  std::printf("%u idle QPs in 3 s: %lld us of processor time here, %lld us there; %zu bytes for each QP\n",
              kQps, static_cast<long long>(here.count()), static_cast<long long>(there.count()),
              many.bytes / kQps);
  EXPECT_LT(here, kMaxCpu);
  EXPECT_LT(there, kMaxCpu);
}

INSTANTIATE_TEST_SUITE_P(By, Idle, ::testing::Values(Route::kLocal, Route::kWire),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace verbena::adapter::testing
