// SPDX-License-Identifier: Apache-2.0
// Compares the C++ API with the same loops in C: nanoseconds for each message between two queue pairs of this
// process. Rounds of C and C++ alternate, so that both see the same machine. Prints the median of the rounds
// and of their differences. Run it under `verbena run`, or on any other adapter.
//
//   verbena run build/release/bench/cpp/cpp_overhead [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <verbena/verbs.hpp>

namespace {

using namespace verbena;

constexpr int kMessages = 20'000;
constexpr int kChain = 4;

struct Pair {
  context device = open().value();
  pd domain = device.make_pd().value();
  cq queue = device.make_cq(256).value();
  qp near = domain.make_qp(rc, {.send_cq = queue, .max_inline = 64}).value();
  qp far = domain.make_qp(rc, {.send_cq = queue, .max_inline = 64}).value();
  region buffer = domain.allocate(4096, access::remote_write).value();
  remote_slice target = buffer.remote().part(2048, 64);

  Pair() {
    near.connect(far.local_endpoint().value()).value();
    far.connect(near.local_endpoint().value()).value();
  }
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "cpp_overhead: %s\n", what);
  std::exit(1);
}

// ---- one WRITE of 8 bytes at a time

void write_in_c(Pair& pair) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(pair.buffer.data()), 8, pair.buffer.lkey()};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma = {pair.target.address, pair.target.rkey};
  for (int i = 0; i < kMessages; ++i) {
    request.wr_id = static_cast<std::uint64_t>(i);
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(pair.near.get(), &request, &bad) != 0) fail("ibv_post_send");
    ibv_wc done[16];
    int count = 0;
    while ((count = ibv_poll_cq(pair.queue.get(), 16, done)) == 0) {
    }
    if (count < 0 || done[0].status != IBV_WC_SUCCESS) fail("a WRITE has failed");
  }
}

void write_in_cpp(Pair& pair) {
  for (int i = 0; i < kMessages; ++i) {
    const auto request = write(pair.buffer.first(8), pair.target).signaled(static_cast<std::uint64_t>(i));
    if (!pair.near.post(request)) fail("post");
    for (bool done = false; !done;) {
      for (const completion& each : pair.queue.poll()) {
        if (!each) fail("a WRITE has failed");
        done = true;
      }
    }
  }
}

// ---- chains of inlined WRITEs, of which the last completes visibly

void chain_in_c(Pair& pair) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(pair.buffer.data()), 8, 0};
  ibv_send_wr chain[kChain]{};
  for (int i = 0; i < kChain; ++i) {
    chain[i].sg_list = &piece;
    chain[i].num_sge = 1;
    chain[i].opcode = IBV_WR_RDMA_WRITE;
    chain[i].send_flags = i == kChain - 1 ? IBV_SEND_INLINE | IBV_SEND_SIGNALED : IBV_SEND_INLINE;
    chain[i].wr.rdma = {pair.target.address, pair.target.rkey};
    chain[i].next = i == kChain - 1 ? nullptr : &chain[i + 1];
  }
  for (int i = 0; i < kMessages; i += kChain) {
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(pair.near.get(), chain, &bad) != 0) fail("ibv_post_send");
    ibv_wc done[16];
    int count = 0;
    while ((count = ibv_poll_cq(pair.queue.get(), 16, done)) == 0) {
    }
    if (count < 0 || done[0].status != IBV_WC_SUCCESS) fail("a WRITE has failed");
  }
}

void chain_in_cpp(Pair& pair) {
  for (int i = 0; i < kMessages; i += kChain) {
    const auto one = write(pair.buffer.first(8), pair.target).inlined();
    if (!pair.near.post(one, one, one, one.signaled())) fail("post");
    for (bool done = false; !done;) {
      for (const completion& each : pair.queue.poll()) {
        if (!each) fail("a WRITE has failed");
        done = true;
      }
    }
  }
}

double nanoseconds(void (*loop)(Pair&), Pair& pair) {
  const auto begin = std::chrono::steady_clock::now();
  loop(pair);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kMessages;
}

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

void compare(const char* name, void (*in_c)(Pair&), void (*in_cpp)(Pair&), Pair& pair, int rounds) {
  std::vector<double> c, cpp, difference;
  for (int round = 0; round < rounds; ++round) {
    c.push_back(nanoseconds(in_c, pair));
    cpp.push_back(nanoseconds(in_cpp, pair));
    difference.push_back(cpp.back() - c.back());
  }
  std::printf("%-28s C %7.1f ns, C++ %7.1f ns, difference %+6.1f ns (%+.1f %%)\n", name, median(c),
              median(cpp), median(difference), 100 * median(difference) / median(c));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 51;
  try {
    Pair pair;
    compare("one WRITE of 8 bytes", write_in_c, write_in_cpp, pair, rounds);
    compare("WRITEs in chains of 4, inline", chain_in_c, chain_in_cpp, pair, rounds);
  } catch (const verbena::exception& failed) {
    fail(failed.what());
  }
}
