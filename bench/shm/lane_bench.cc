// SPDX-License-Identifier: Apache-2.0
// Measures a ring in shared memory: in one thread, where all cache lines stay local, and between two threads.
// For comparison: a flag that two threads pass to each other, and memcpy(). On a virtual machine, two
// processors may be near each other or far apart, so compare figures of one run only.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>

#include "adapter/memory/guarded.h"
#include "adapter/shm/lane_reader.h"
#include "adapter/shm/lane_writer.h"

namespace verbena::shm {
namespace {

constexpr uint32_t kHeadBytes = 28;  // BTH and RETH

struct Channel {
  Channel() { memory::install_fault_guard(); }
  std::unique_ptr<ChannelMemory> memory = std::make_unique<ChannelMemory>();
  LaneWriter writer{memory->lanes[0]};
  LaneReader reader{memory->lanes[0]};
  std::byte head[kHeadBytes] = {};
  std::vector<std::byte> from = std::vector<std::byte>(1 << 20);
  std::vector<std::byte> to = std::vector<std::byte>(1 << 20);

  bool put(uint32_t bytes, size_t at = 0) {
    const ConstBytes piece(from.data() + at, bytes);
    return writer.put(EntryKind::kPacket, head, {&piece, bytes == 0 ? 0u : 1u}, bytes) == Put::kDone;
  }
  bool read(size_t at = 0) {
    LaneReader::Read read;
    if (!reader.next(read)) return false;
    std::memcpy(to.data() + at, read.payload.data(), read.payload.size());
    return true;
  }
};

// The second thread of a benchmark, pinned to the last processor; the first thread is pinned to the first
// one.
class OtherThread {
 public:
  template <class F>
  explicit OtherThread(F run)
      : thread_([this, run] { pin(std::thread::hardware_concurrency() - 1), run(ends_); }) {
    pin(0);
  }
  ~OtherThread() {
    ends_.store(true);
    thread_.join();
  }

 private:
  static void pin(unsigned processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  }

  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// Puts and reads one entry, with all calls that a program makes for each message.
void one_thread(benchmark::State& state) {
  Channel channel;
  const auto bytes = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    channel.put(bytes);
    benchmark::DoNotOptimize(channel.writer.must_ring());
    channel.read();
    benchmark::DoNotOptimize(channel.reader.take_back());
  }
}

// The same with 32 entries at a time.
void one_thread_in_batches(benchmark::State& state) {
  Channel channel;
  const auto bytes = static_cast<uint32_t>(state.range(0));
  constexpr int64_t kBatch = 32;
  while (state.KeepRunningBatch(kBatch)) {
    for (int64_t i = 0; i < kBatch; ++i) channel.put(bytes);
    benchmark::DoNotOptimize(channel.writer.must_ring());
    for (int64_t i = 0; i < kBatch; ++i) channel.read();
    benchmark::DoNotOptimize(channel.reader.take_back());
  }
}

void empty_look(benchmark::State& state) {
  Channel channel;
  LaneReader::Read read;
  for (auto _ : state) benchmark::DoNotOptimize(channel.reader.next(read));
}

// One iteration is half a round trip: two processors pass a number to each other.
void flag_half_round_trip(benchmark::State& state) {
  struct alignas(128) Flag {
    std::atomic<uint32_t> value{0};
  };
  Flag there;
  Flag back;
  OtherThread other([&](const std::atomic<bool>& ends) {
    for (uint32_t i = 1;; ++i) {
      while (there.value.load(std::memory_order_acquire) != i) {
        if (ends.load(std::memory_order_relaxed)) return;
      }
      back.value.store(i, std::memory_order_release);
    }
  });
  uint32_t i = 0;
  while (state.KeepRunningBatch(2)) {
    there.value.store(++i, std::memory_order_release);
    while (back.value.load(std::memory_order_acquire) != i) {
    }
  }
}

// The same with two rings. `range(1)`: whether to call must_ring() and take_back() for each message.
void lane_half_round_trip(benchmark::State& state) {
  const auto bytes = static_cast<uint32_t>(state.range(0));
  const bool asks = state.range(1) != 0;
  Channel there;
  Channel back;
  const auto answer = [asks](Channel& from, Channel& to, uint32_t size, const std::atomic<bool>* ends) {
    while (!from.read()) {
      if (ends != nullptr && ends->load(std::memory_order_relaxed)) return false;
    }
    if (asks || from.reader.is_much_read()) from.reader.take_back();
    return to.put(size);
  };
  OtherThread other([&](const std::atomic<bool>& ends) {
    while (answer(there, back, bytes, &ends)) {
      if (asks) benchmark::DoNotOptimize(back.writer.must_ring());
    }
  });
  there.put(bytes);
  while (state.KeepRunningBatch(2)) {
    answer(back, there, bytes, nullptr);
    if (asks) benchmark::DoNotOptimize(there.writer.must_ring());
  }
}

// One thread puts, another copies out; the two processors copy at the same time.
void stream(benchmark::State& state) {
  const auto bytes = static_cast<uint32_t>(state.range(0));
  Channel channel;
  std::atomic<uint64_t> received{0};
  OtherThread other([&](const std::atomic<bool>& ends) {
    uint64_t count = 0;
    for (size_t at = 0; !ends.load(std::memory_order_relaxed);) {
      while (!channel.reader.is_much_read() && channel.read(at)) {
        ++count;
        at = at + size_t{2} * bytes > (1 << 20) ? 0 : at + bytes;
      }
      channel.reader.take_back();
      received.store(count, std::memory_order_release);
    }
  });
  size_t at = 0;
  uint64_t sent = 0;
  for (auto _ : state) {
    while (!channel.put(bytes, at)) {
    }
    ++sent;
    at = at + size_t{2} * bytes > (1 << 20) ? 0 : at + bytes;
  }
  while (received.load(std::memory_order_acquire) != sent) {
  }
  state.SetBytesProcessed(static_cast<int64_t>(sent * bytes));
  state.SetItemsProcessed(static_cast<int64_t>(sent));
}

// A single copy by one processor, over as much memory as stream() uses.
void memcpy_rate(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> from(1 << 20);
  std::vector<std::byte> to(1 << 20);
  size_t at = 0;
  for (auto _ : state) {
    std::memcpy(to.data() + at, from.data() + at, bytes);
    benchmark::ClobberMemory();
    at = at + size_t{2} * bytes > from.size() ? 0 : at + bytes;
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

BENCHMARK(one_thread)->Arg(0)->Arg(8)->Arg(28)->Arg(256)->Arg(4096);
BENCHMARK(one_thread_in_batches)->Arg(0)->Arg(8)->Arg(28)->Arg(256)->Arg(1024);
BENCHMARK(empty_look);
BENCHMARK(flag_half_round_trip)->UseRealTime();
BENCHMARK(lane_half_round_trip)
    ->ArgsProduct({{0, 8, 256, 1024, 4096, 8192}, {0, 1}})
    ->ArgNames({"bytes", "asks"})
    ->UseRealTime();
BENCHMARK(stream)->Arg(8)->Arg(64)->Arg(1024)->Arg(4096)->Arg(8192)->UseRealTime();
BENCHMARK(memcpy_rate)->Arg(4096)->Arg(8192);

}  // namespace
}  // namespace verbena::shm
