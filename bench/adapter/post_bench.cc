// SPDX-License-Identifier: Apache-2.0
// Measures the cost of posting: ibv_post_send() and the ibv_wr_*() calls with the same requests. The QP is in
// SQD, so posting is all that happens. Rounds of the two alternate, since a shared machine disturbs both; the
// ratio is that of the medians. Needs an unprivileged user namespace, or root, for an agent of its own.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"

namespace verbena::adapter::testing {
namespace {

constexpr uint32_t kRequests = 1 << 13;  // per round; fills the queue
constexpr int kRounds = 41;
constexpr uint32_t kLargestBatch = 16;

struct Bench {
  Bench() : pair(options()) { qp = ibv_qp_to_qp_ex(pair.a.qp.get()); }

  static Options options() {
    return {.cap = {.max_send_wr = kRequests,
                    .max_recv_wr = 16,
                    .max_send_sge = 2,
                    .max_recv_sge = 1,
                    .max_inline_data = 64},
            .send_operations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND};
  }

  // Empties the queue and sets the QP to SQD, so that it sends nothing.
  void prepare() {
    pair.a.modify_to(IBV_QPS_RESET);
    pair.a.connect(pair.b.address());
    pair.a.modify_to(IBV_QPS_SQD);
  }

  Pair pair;
  ibv_qp_ex* qp;
};

void fail(const char* what) {
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

// Posts batches as a program does that reuses its requests: it sets only the members that change.
void post_list(Bench& bench, uint32_t batch, bool is_inline) {
  static ibv_send_wr requests[kLargestBatch];
  static ibv_sge pieces[kLargestBatch];
  const Address to = bench.pair.b.address();
  for (uint32_t i = 0; i < batch; ++i) {
    pieces[i] = bench.pair.a.piece(0, 32);
    requests[i] = remote_request(IBV_WR_RDMA_WRITE, 0, to, 0, is_inline ? IBV_SEND_INLINE : 0);
    requests[i].sg_list = &pieces[i];
    requests[i].num_sge = 1;
    requests[i].next = i + 1 < batch ? &requests[i + 1] : nullptr;
  }
  const uint64_t local = pieces[0].addr;
  for (uint32_t done = 0; done < kRequests; done += batch) {
    for (uint32_t i = 0; i < batch; ++i) {
      requests[i].wr_id = done + i;
      requests[i].wr.rdma.remote_addr = to.buffer + i;
      pieces[i].addr = local + i;
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(bench.pair.a.qp.get(), requests, &bad) != 0) fail("ibv_post_send");
  }
}

void post_calls(Bench& bench, uint32_t batch, bool is_inline) {
  ibv_qp_ex* qp = bench.qp;
  const Address to = bench.pair.b.address();
  const ibv_sge piece = bench.pair.a.piece(0, 32);
  qp->wr_flags = 0;
  for (uint32_t done = 0; done < kRequests; done += batch) {
    ibv_wr_start(qp);
    for (uint32_t i = 0; i < batch; ++i) {
      qp->wr_id = done + i;
      ibv_wr_rdma_write(qp, to.rkey, to.buffer + i);
      if (is_inline) {
        ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(piece.addr + i), piece.length);
      } else {
        ibv_wr_set_sge(qp, piece.lkey, piece.addr + i, piece.length);
      }
    }
    if (ibv_wr_complete(qp) != 0) fail("ibv_wr_complete");
  }
}

double nanoseconds_each(Bench& bench, const std::function<void()>& post) {
  bench.prepare();
  const auto begin = std::chrono::steady_clock::now();
  post();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kRequests;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void compare(Bench& bench, uint32_t batch, bool is_inline) {
  std::vector<double> list;
  std::vector<double> calls;
  for (int round = 0; round < kRounds; ++round) {
    list.push_back(nanoseconds_each(bench, [&] { post_list(bench, batch, is_inline); }));
    calls.push_back(nanoseconds_each(bench, [&] { post_calls(bench, batch, is_inline); }));
  }
  std::printf(
      "RDMA WRITE 32 bytes%s, %2u at once: ibv_post_send %6.1f ns  ibv_wr_* %6.1f ns  %.2f times as fast\n",
      is_inline ? " inline" : "       ", batch, median(list), median(calls), median(list) / median(calls));
}

}  // namespace
}  // namespace verbena::adapter::testing

int main() {
  using namespace verbena::adapter::testing;
  Environment environment;
  environment.SetUp();
  {
    Bench bench;
    for (const bool is_inline : {false, true}) {
      for (const uint32_t batch : {1u, 4u, kLargestBatch}) compare(bench, batch, is_inline);
    }
  }
  environment.TearDown();
}
