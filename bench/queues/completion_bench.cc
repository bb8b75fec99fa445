// SPDX-License-Identifier: Apache-2.0
// Measures the cost of a completion in its queue: copied out as by ibv_poll_cq(), or read in place as by
// ibv_start_poll() and ibv_next_poll(). One iteration is one completion, pushed and polled.
#include <benchmark/benchmark.h>

#include "adapter/queues/completion_queue.h"

namespace verbena::queues {
namespace {

struct Deaf : CompletionListener {
  void on_completion_event() override {}
  void on_overflow() override {}
};

struct Bench {
  explicit Bench(const CompletionQueue::Options& options) {
    queue = *CompletionQueue::create(1023, &listener, options);
  }
  void push(int64_t count) {
    ibv_wc wc{};
    wc.opcode = IBV_WC_RECV;
    wc.byte_len = 64;
    for (int64_t i = 0; i < count; ++i) {
      wc.wr_id = static_cast<uint64_t>(i);
      queue->push(wc, false);
    }
  }

  Deaf listener;
  std::unique_ptr<CompletionQueue> queue;
};

void poll_cq(benchmark::State& state) {
  Bench bench({});
  const int64_t count = state.range(0);
  uint64_t sum = 0;
  while (state.KeepRunningBatch(count)) {
    bench.push(count);
    ibv_wc wc[64];
    const int got = bench.queue->poll(static_cast<int>(count), wc);
    for (int i = 0; i < got; ++i) sum += wc[i].wr_id + wc[i].byte_len + wc[i].qp_num + wc[i].opcode;
  }
  benchmark::DoNotOptimize(sum);
}

// Indirect calls that the compiler cannot inline, like the function pointers of an ibv_cq_ex.
struct Extended {
  const Completion* (*begin)(CompletionQueue&) = [](CompletionQueue& q) { return q.begin_batch(); };
  const Completion* (*next)(CompletionQueue&) = [](CompletionQueue& q) { return q.next_in_batch(); };
  void (*end)(CompletionQueue&) = [](CompletionQueue& q) { q.end_batch(); };
  uint32_t (*byte_len)(const Completion&) = [](const Completion& c) { return c.byte_len; };
  uint32_t (*qp_num)(const Completion&) = [](const Completion& c) { return c.qp_num; };
  uint8_t (*opcode)(const Completion&) = [](const Completion& c) { return c.read_opcode(); };
};

void extended(benchmark::State& state, const CompletionQueue::Options& options) {
  Bench bench(options);
  Extended calls;
  benchmark::DoNotOptimize(calls);
  const int64_t count = state.range(0);
  uint64_t sum = 0;
  while (state.KeepRunningBatch(count)) {
    bench.push(count);
    CompletionQueue& queue = *bench.queue;
    for (const Completion* at = calls.begin(queue); at != nullptr; at = calls.next(queue)) {
      sum += at->wr_id + calls.byte_len(*at) + calls.qp_num(*at) + calls.opcode(*at);
    }
    calls.end(queue);
  }
  benchmark::DoNotOptimize(sum);
}

BENCHMARK(poll_cq)->Arg(1)->Arg(16)->Arg(64);
BENCHMARK_CAPTURE(extended, plain, CompletionQueue::Options{})->Arg(1)->Arg(16)->Arg(64);
BENCHMARK_CAPTURE(extended, one_thread, CompletionQueue::Options{.single_threaded = true})
    ->Arg(1)
    ->Arg(16)
    ->Arg(64);
BENCHMARK_CAPTURE(extended, timestamps, CompletionQueue::Options{.device_clock = true})->Arg(1)->Arg(16);

}  // namespace
}  // namespace verbena::queues
