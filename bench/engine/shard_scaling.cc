// SPDX-License-Identifier: Apache-2.0
// Measures whether threads with QPs and CQs of their own slow each other down: messages per second of 1, 2
// and 4 threads in one process. Each has a connected pair of RC QPs with a CQ each, and sends from one to the
// other with ibv_post_send() and ibv_poll_cq(). This covers the whole path of a program, since threads may
// share data anywhere along it. Each shard has a net::LoopbackPort instead of a socket: nothing is lost, and
// no system call is made.
//
// Measured in the same run, in alternating rounds:
// - processes: the same number of single-threaded processes, which share nothing. It is the maximum on this
//   machine: with fewer processors than threads, no ratio exceeds the number of processors.
// - one shard: the same threads on a single shard (VERBENA_SHARDS=1). It shows the benefit of shards.
//
// Needs an unprivileged user namespace, or root, for an agent of its own.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/net/sim/loopback_port.h"
#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/process/engine.h"
#include "base/format.h"
#include "wire/roce/qpn.h"

namespace verbena::adapter::testing {
namespace {

constexpr uint32_t kBatch = 16;  // messages posted with one call
constexpr uint32_t kBytes = 64;
constexpr size_t kMaxWorkers = 16;

struct Arguments {
  std::vector<size_t> counts{1, 2, 4};
  int rounds = 9;
  int milliseconds = 200;  // per measurement
};

[[noreturn]] void fail(const char* what) {
  verbena::print(stderr, "{} failed\n", what);
  std::_Exit(1);
}

// The result of a worker, on a cache line of its own.
struct alignas(64) Outcome {
  double messages_per_second = 0;
  uint32_t slot = 0;
};

// Memory that the parent and the workers share.
struct Board {
  pthread_barrier_t begin;
  std::array<Outcome, kMaxWorkers> results;
};

Board& make_board(size_t workers) {
  void* at = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("mmap");
  auto& board = *new (at) Board;
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&board.begin, &attributes, static_cast<unsigned>(workers));
  return board;
}

// Pins the calling thread to a processor, the same one in each measurement.
void stay_on_processor(size_t number) {
  cpu_set_t all;
  CPU_ZERO(&all);
  if (::sched_getaffinity(0, sizeof all, &all) != 0) return;
  size_t skip = number % static_cast<size_t>(CPU_COUNT(&all));
  for (size_t processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &all) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

// A pair of QPs of the calling thread, which sends batches of messages from one to the other.
class Stream {
 public:
  Stream() : pair_(options()) {
    for (uint32_t i = 0; i < kBatch; ++i) {
      from_[i] = pair_.a.piece(i * kBytes, kBytes);
      to_[i] = pair_.b.piece(i * kBytes, kBytes);
      const bool last = i + 1 == kBatch;
      sends_[i] = {};
      sends_[i].opcode = IBV_WR_SEND;
      sends_[i].send_flags = last ? IBV_SEND_SIGNALED : 0;
      sends_[i].sg_list = &from_[i];
      sends_[i].num_sge = 1;
      sends_[i].next = last ? nullptr : &sends_[i + 1];
      receives_[i] = {};
      receives_[i].sg_list = &to_[i];
      receives_[i].num_sge = 1;
      receives_[i].next = last ? nullptr : &receives_[i + 1];
    }
  }

  void send_batch() {
    ibv_recv_wr* bad_receive = nullptr;
    ibv_send_wr* bad_send = nullptr;
    if (ibv_post_recv(pair_.b.qp.get(), receives_.data(), &bad_receive) != 0) fail("ibv_post_recv");
    if (ibv_post_send(pair_.a.qp.get(), sends_.data(), &bad_send) != 0) fail("ibv_post_send");
    await(pair_.b, kBatch);
    await(pair_.a, 1);
  }

  uint32_t slot() const { return roce::Qpn(pair_.a.qp->qp_num).slot(); }

 private:
  static Options options() {
    Options options;
    options.bytes = size_t{kBatch} * kBytes;
    return options;
  }
  static void await(Endpoint& endpoint, uint32_t completions) {
    ibv_wc found[kBatch];
    while (completions > 0) {
      const int count = ibv_poll_cq(endpoint.cq.get(), kBatch, found);
      if (count < 0) fail("ibv_poll_cq");
      for (int i = 0; i < count; ++i) {
        if (found[i].status != IBV_WC_SUCCESS) fail("a request");
      }
      completions -= static_cast<uint32_t>(count);
    }
  }

  Pair pair_;
  std::array<ibv_sge, kBatch> from_;
  std::array<ibv_sge, kBatch> to_;
  std::array<ibv_send_wr, kBatch> sends_;
  std::array<ibv_recv_wr, kBatch> receives_;
};

void work(Board& board, size_t number, std::chrono::milliseconds duration) {
  using Clock = std::chrono::steady_clock;
  Stream stream;
  stay_on_processor(number);
  for (int i = 0; i < 200; ++i)
    stream.send_batch();  // until the application thread makes progress for its shard
  pthread_barrier_wait(&board.begin);
  const auto begin = Clock::now();
  auto now = begin;
  uint64_t batches = 0;
  while (now - begin < duration) {
    for (int i = 0; i < 16; ++i) stream.send_batch();
    batches += 16;
    now = Clock::now();
  }
  const std::chrono::duration<double> took = now - begin;
  board.results[number] = {static_cast<double>(batches * kBatch) / took.count(), stream.slot()};
  pthread_barrier_wait(&board.begin);  // keep the load until all workers have finished
}

Result<net::PortList> loopback_ports(net::Ways, net::PortCounters& counters) {
  net::PortList ports;
  ports.push_back(std::make_unique<net::LoopbackPort>(counters));
  return ports;
}

// Runs a process with `threads` workers, numbered from `first`.
[[noreturn]] void run_process(Board& board, size_t first, size_t threads,
                              std::chrono::milliseconds duration) {
  ::setenv("VERBENA_LOCAL", "off", 1);  // use the ports instead of shared memory
  engine::Engine::set_port_factory(loopback_ports);
  std::vector<std::thread> workers;
  for (size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&board, first, i, duration] { work(board, first + i, duration); });
  }
  for (std::thread& worker : workers) worker.join();
  std::_Exit(0);
}

// Returns messages per second of `processes` processes with `threads` threads each, on at most `shards`
// shards.
double measure(size_t processes, size_t threads, size_t shards, std::chrono::milliseconds duration) {
  const size_t workers = processes * threads;
  Board& board = make_board(workers);
  ::setenv("VERBENA_SHARDS", std::to_string(shards).c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  std::vector<pid_t> children;
  for (size_t i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    if (child < 0) fail("fork");
    if (child == 0) run_process(board, i * threads, threads, duration);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    if (::waitpid(child, &status, 0) != child || status != 0) fail("a process");
  }
  double sum = 0;
  std::vector<uint32_t> slots;
  for (size_t i = 0; i < workers; ++i) {
    sum += board.results[i].messages_per_second;
    slots.push_back(board.results[i].slot);
  }
  std::ranges::sort(slots);
  const size_t distinct = slots.size() - std::ranges::unique(slots).size();
  if (distinct != processes * std::min(threads, shards)) fail("a shard for each thread");
  ::munmap(&board, sizeof board);
  return sum;
}

double median(std::vector<double>& values) {
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void run(const Arguments& arguments) {
  struct Figures {
    std::vector<double> threads, processes, one_shard;
  };
  const std::chrono::milliseconds duration(arguments.milliseconds);
  std::vector<Figures> figures(arguments.counts.size());
  for (int round = 0; round < arguments.rounds; ++round) {
    for (size_t i = 0; i < figures.size(); ++i) {
      const size_t count = arguments.counts[i];
      figures[i].threads.push_back(measure(1, count, count, duration));
      figures[i].processes.push_back(measure(count, 1, 1, duration));
      figures[i].one_shard.push_back(measure(1, count, 1, duration));
    }
  }
  verbena::print("{}-byte messages per second, in millions, and as a ratio to {} of the same kind\n", kBytes,
                 arguments.counts.front());
  verbena::print("        threads         processes       threads on one shard\n");
  std::array<double, 3> firsts{};
  for (size_t i = 0; i < figures.size(); ++i) {
    const std::array<double, 3> medians{median(figures[i].threads), median(figures[i].processes),
                                        median(figures[i].one_shard)};
    if (i == 0) firsts = medians;
    verbena::print("{:5}", arguments.counts[i]);
    for (size_t kind = 0; kind < medians.size(); ++kind)
      verbena::print("  {:7.3f} {:6.2f}", medians[kind] / 1e6, medians[kind] / firsts[kind]);
    verbena::print("\n");
  }
}

}  // namespace
}  // namespace verbena::adapter::testing

int main(int argc, char** argv) {
  using namespace verbena::adapter::testing;
  Arguments arguments;
  CLI::App app("Measures messages per second of threads that share nothing");
  app.add_option("--threads", arguments.counts,
                 "Numbers of threads, in this order; ratios are relative to the first");
  app.add_option("--rounds", arguments.rounds, "Measurements per configuration; the median is shown");
  app.add_option("--milliseconds", arguments.milliseconds, "Length of a measurement");
  CLI11_PARSE(app, argc, argv);
  for (const size_t count : arguments.counts) {
    if (count < 1 || count > verbena::engine::kMaxShards) fail("a number of threads");
  }
  Environment environment;
  environment.SetUp();
  run(arguments);
  environment.TearDown();
}
