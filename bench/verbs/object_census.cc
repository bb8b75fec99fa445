// SPDX-License-Identifier: Apache-2.0
// Measures the cost of many objects in one process: QPs that are connected and used, memory regions,
// completion queues. Prints the time and memory of each, separately for the first and the second half, which
// shows whether they grow with the number. With --idle, also measures the cost of idle queue pairs.
//
//     verbena run -- build/release/bin/object_census --qps 10000 --regions 100000 --cqs 1000
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <sys/resource.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

// Returns the resident memory of this process in bytes.
double resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

void require(bool good, const char* what) {
  if (good) return;
  fmt::print(stderr, "object_census: {}: {}\n", what, std::strerror(errno));
  std::exit(1);
}

// Does `count` steps and prints the average cost of a step in each half.
void measure(const char* what, size_t count, const std::function<void(size_t)>& one) {
  struct Half {
    double microseconds, bytes;
  } halves[2];
  size_t next = 0;
  for (Half& half : halves) {
    const size_t end = &half == halves ? count / 2 : count;
    const size_t begin = next;
    const double memory = resident_bytes();
    const auto start = Clock::now();
    for (; next < end; ++next) one(next);
    const double elapsed = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    const auto things = static_cast<double>(std::max<size_t>(end - begin, 1));
    half = {elapsed / things, (resident_bytes() - memory) / things};
  }
  fmt::print("{:<24} {:>7} {:>10.2f} {:>10.2f} {:>8.2f} {:>10.0f} {:>10.0f}\n", what, count,
             halves[0].microseconds, halves[1].microseconds,
             halves[1].microseconds / std::max(halves[0].microseconds, 1e-9), halves[0].bytes,
             halves[1].bytes);
}

struct Device {
  ibv_context* context;
  ibv_pd* pd;
  ibv_gid gid;
};

Device open(const std::string& name, int gid_index) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  require(list != nullptr && count > 0, "no device");
  ibv_device* chosen = list[0];
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) chosen = list[i];
  }
  Device device{};
  device.context = ibv_open_device(chosen);
  require(device.context != nullptr, "ibv_open_device");
  ibv_free_device_list(list);
  device.pd = ibv_alloc_pd(device.context);
  require(device.pd != nullptr, "ibv_alloc_pd");
  require(ibv_query_gid(device.context, 1, gid_index, &device.gid) == 0, "ibv_query_gid");
  return device;
}

// Connects a QP to itself, so that it works without a second QP.
void connect(ibv_qp* qp, const ibv_gid& gid, int gid_index) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  require(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
          "to INIT");
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qp->qp_num;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index);
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  require(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
          "to RTR");
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  require(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0,
          "to RTS");
}

void write_once(ibv_qp* qp, ibv_cq* cq, const ibv_mr* mr) {
  ibv_sge sge{reinterpret_cast<uint64_t>(mr->addr), 8, mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = sge.addr + 8;
  wr.wr.rdma.rkey = mr->rkey;
  ibv_send_wr* bad = nullptr;
  require(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
  ibv_wc wc{};
  int found = 0;
  while ((found = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  require(found == 1 && wc.status == IBV_WC_SUCCESS, "completion");
}

// Processor use of all threads of this process.
struct Used {
  double microseconds;
  long switches;  // voluntary and involuntary context switches
};
Used used() {
  rusage found{};
  require(::getrusage(RUSAGE_SELF, &found) == 0, "getrusage");
  const auto microseconds = [](const timeval& time) {
    return 1e6 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec);
  };
  return {microseconds(found.ru_utime) + microseconds(found.ru_stime), found.ru_nvcsw + found.ru_nivcsw};
}

void stay_idle(double seconds) {
  std::this_thread::sleep_for(std::chrono::seconds(1));  // let work of the last messages finish
  const Used before = used();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const Used after = used();
  fmt::print("idle for {} s: {:.0f} us of a processor, {} switches of threads\n", seconds,
             after.microseconds - before.microseconds, after.switches - before.switches);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures the time and memory of many verbs objects in one process."};
  size_t qp_count = 10000, region_count = 100000, cq_count = 1000;
  std::string device_name;
  int gid_index = 0;
  double idle = 0;
  app.add_option("--qps", qp_count, "Queue pairs (RC, rings of 16 requests)")->capture_default_str();
  app.add_option("--regions", region_count, "Memory regions")->capture_default_str();
  app.add_option("--cqs", cq_count, "Completion queues (of 63 entries)")->capture_default_str();
  app.add_option("--idle", idle, "Seconds for which to measure the cost of idle objects")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", device_name, "Device; default: the first");
  app.add_option("--gid-index", gid_index, "Index of the GID to use")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const Device device = open(device_name, gid_index);
  std::vector<char> memory(1 << 16);
  std::vector<ibv_cq*> cqs(std::max<size_t>(cq_count, 1));
  std::vector<ibv_mr*> mrs(std::max<size_t>(region_count, 1));
  std::vector<ibv_qp*> qps(qp_count);

  fmt::print("{:<24} {:>7} {:>10} {:>10} {:>8} {:>10} {:>10}\n", "", "number", "us, first", "us, second",
             "ratio", "bytes, 1st", "bytes, 2nd");
  measure("create CQ", cqs.size(), [&](size_t i) {
    cqs[i] = ibv_create_cq(device.context, 63, nullptr, nullptr, 0);
    require(cqs[i] != nullptr, "ibv_create_cq");
  });
  measure("register region", mrs.size(), [&](size_t i) {
    mrs[i] = ibv_reg_mr(device.pd, memory.data(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    require(mrs[i] != nullptr, "ibv_reg_mr");
  });
  measure("create QP", qps.size(), [&](size_t i) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cqs[i % cqs.size()];
    attr.cap = {16, 16, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    qps[i] = ibv_create_qp(device.pd, &attr);
    require(qps[i] != nullptr, "ibv_create_qp");
  });
  measure("connect QP", qps.size(), [&](size_t i) { connect(qps[i], device.gid, gid_index); });
  measure("RDMA WRITE, 8 bytes", qps.size(),
          [&](size_t i) { write_once(qps[i], cqs[i % cqs.size()], mrs[(i * 7919) % mrs.size()]); });
  if (idle > 0) stay_idle(idle);
  measure("destroy QP", qps.size(),
          [&](size_t i) { require(ibv_destroy_qp(qps[i]) == 0, "ibv_destroy_qp"); });
  measure("deregister region", mrs.size(),
          [&](size_t i) { require(ibv_dereg_mr(mrs[i]) == 0, "ibv_dereg_mr"); });
  measure("destroy CQ", cqs.size(),
          [&](size_t i) { require(ibv_destroy_cq(cqs[i]) == 0, "ibv_destroy_cq"); });
  require(ibv_dealloc_pd(device.pd) == 0 && ibv_close_device(device.context) == 0, "close");
  return 0;
}
