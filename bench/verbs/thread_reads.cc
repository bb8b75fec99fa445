// SPDX-License-Identifier: Apache-2.0
// Measures RDMA READs of 8 bytes per second by many threads of one process, one READ at a time per thread.
// Each thread has two QPs of its own that are connected to each other.
//
//     verbena run -- build/release/bin/thread_reads --threads 1,2,4,256
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <infiniband/verbs.h>

namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::vector<int> threads{1, 2, 4, 256};
  double seconds = 3;
  int depth = 1;
  std::string device;
};

void require(bool good, const char* what) {
  if (good) return;
  fmt::print(stderr, "thread_reads: {}: {}\n", what, std::strerror(errno));
  std::exit(1);
}

// Returns the index of the first GID that is neither empty nor link-local, which would need an interface.
int usable_gid(ibv_context* context, ibv_gid& gid) {
  for (int index = 0; index < 16; ++index) {
    if (ibv_query_gid(context, 1, index, &gid) != 0) break;
    const bool is_empty = gid.global.subnet_prefix == 0 && gid.global.interface_id == 0;
    if (!is_empty && !(gid.raw[0] == 0xfe && gid.raw[1] == 0x80)) return index;
  }
  require(false, "no GID");
  return 0;
}

// The objects of a thread.
class Pair {
 public:
  explicit Pair(ibv_context* context) : context_(context) {
    pd_ = ibv_alloc_pd(context);
    mr_ = ibv_reg_mr(pd_, words_, sizeof words_,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    cq_ = ibv_create_cq(context, 512, nullptr, nullptr, 0);
    require(pd_ != nullptr && mr_ != nullptr && cq_ != nullptr, "objects");
    for (ibv_qp*& qp : qps_) {
      ibv_qp_init_attr attr{};
      attr.send_cq = attr.recv_cq = cq_;
      attr.cap = {
          .max_send_wr = 128, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
      attr.qp_type = IBV_QPT_RC;
      qp = ibv_create_qp(pd_, &attr);
      require(qp != nullptr, "ibv_create_qp");
    }
    connect(qps_[0], qps_[1]->qp_num);
    connect(qps_[1], qps_[0]->qp_num);
  }
  ~Pair() {
    for (ibv_qp* qp : qps_) ibv_destroy_qp(qp);
    ibv_destroy_cq(cq_);
    ibv_dereg_mr(mr_);
    ibv_dealloc_pd(pd_);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  void post() {
    ibv_sge sge{reinterpret_cast<uint64_t>(&words_[0]), 8, mr_->lkey};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {reinterpret_cast<uint64_t>(&words_[1]), mr_->rkey};
    ibv_send_wr* bad = nullptr;
    require(ibv_post_send(qps_[0], &wr, &bad) == 0, "ibv_post_send");
  }
  int poll() {
    ibv_wc wc[16];
    const int count = ibv_poll_cq(cq_, 16, wc);
    for (int i = 0; i < count; ++i) require(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
    return count;
  }

 private:
  void connect(ibv_qp* qp, uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    require(
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
        "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 16;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(usable_gid(context_, attr.ah_attr.grh.dgid));
    require(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
            "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 16;
    require(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "RTS");
  }

  ibv_context* const context_;
  ibv_pd* pd_;
  ibv_mr* mr_;
  ibv_cq* cq_;
  ibv_qp* qps_[2] = {};
  uint64_t words_[2] = {};
};

struct Outcome {
  double setup_ms;
  double reads_per_second;
};

Outcome run(ibv_context* context, int count, const Settings& settings) {
  std::latch ready(count + 1);
  std::latch begin(1);
  std::latch done(count);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> total{0};
  std::vector<std::thread> threads;
  const auto start = Clock::now();
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&] {
      Pair pair(context);
      ready.arrive_and_wait();
      begin.wait();
      uint64_t reads = 0;
      int waiting = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        for (; waiting < settings.depth; ++waiting) pair.post();
        const int got = pair.poll();
        waiting -= got;
        reads += static_cast<uint64_t>(got);
      }
      total += reads;
      while (waiting > 0) waiting -= pair.poll();
      done.arrive_and_wait();
    });
  }
  ready.arrive_and_wait();
  const double setup = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const auto from = Clock::now();
  begin.count_down();
  std::this_thread::sleep_for(std::chrono::duration<double>(settings.seconds));
  stop = true;
  const double elapsed = std::chrono::duration<double>(Clock::now() - from).count();
  for (std::thread& thread : threads) thread.join();
  return {setup, static_cast<double>(total.load()) / elapsed};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("RDMA READs per second of many threads of one process");
  app.add_option("--threads", settings.threads, "numbers of threads, one after the other")->delimiter(',');
  app.add_option("--seconds", settings.seconds, "length of each measurement");
  app.add_option("--depth", settings.depth, "requests in flight per thread")->check(CLI::Range(1, 100));
  app.add_option("--device", settings.device, "the device; the first by default");
  CLI11_PARSE(app, argc, argv);

  ibv_device** list = ibv_get_device_list(nullptr);
  require(list != nullptr && list[0] != nullptr, "no device");
  ibv_device* device = list[0];
  for (ibv_device** each = list; *each != nullptr; ++each) {
    if (settings.device == ibv_get_device_name(*each)) device = *each;
  }
  ibv_context* context = ibv_open_device(device);
  require(context != nullptr, "ibv_open_device");
  ibv_free_device_list(list);

  fmt::print("{:>8} {:>12} {:>14} {:>8}\n", "threads", "set up [ms]", "READs/s", "ratio");
  double one = 0;
  for (const int threads : settings.threads) {
    const Outcome outcome = run(context, threads, settings);
    if (one == 0) one = outcome.reads_per_second;
    fmt::print("{:>8} {:>12.1f} {:>14.0f} {:>8.2f}\n", threads, outcome.setup_ms, outcome.reads_per_second,
               outcome.reads_per_second / one);
    std::fflush(stdout);
  }
  ibv_close_device(context);
}
