// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/raw_session.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/format.h"
#include "commands/perf/bandwidth.h"
#include "commands/perf/burst_latency.h"
#include "commands/perf/clock.h"
#include "commands/perf/device.h"
#include "commands/perf/endpoint.h"
#include "commands/perf/figures.h"
#include "commands/perf/json_report.h"
#include "commands/perf/latency.h"
#include "commands/perf/raw_flow.h"
#include "commands/perf/raw_forward.h"
#include "commands/perf/raw_report.h"
#include "commands/perf/report.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

// perftest's limits of a frame with its frame check sequence.
constexpr std::uint32_t kDefaultMtu = 1518, kLeastFrame = 64;
constexpr std::uint32_t kCacheLine = 64;
constexpr std::uint64_t kMaxBuffer = 1 << 30;

std::uint32_t mtu_of(const Parameters& parameters) {
  return parameters.mtu != 0 ? static_cast<std::uint32_t>(parameters.mtu) : kDefaultMtu;
}

// Changes the size to one that a frame can have, as perftest does.
void fit_to_frame(Parameters& parameters) {
  const std::uint32_t mtu = mtu_of(parameters);
  if (parameters.size > mtu) {
    rdma_core::complain(verbena::format(" Max msg size in RawEth is MTU {}", mtu));
    rdma_core::complain(" Changing msg size to this MTU");
    parameters.size = mtu;
  } else if (parameters.size < kLeastFrame) {
    if (parameters.shows_tables())
      std::printf(" Min msg size for RawEth is 64B - changing msg size to 64 \n");
    parameters.size = kLeastFrame;
  }
  const std::size_t headers = header_bytes(sent_frame(parameters, 0)) + kFrameCheckBytes;
  if (headers > parameters.size)
    throw std::runtime_error(verbena::format("-s: the headers of a frame need {} bytes", headers));
}

// A buffer that begins again after a whole number of rounds through all different frames.
Layout layout_of(const Parameters& parameters) {
  const Layout steps{0, kCacheLine};
  const bool forwards = parameters.raw->forwards;  // each receive needs a place of its own
  const std::uint64_t round =
      steps.step(parameters.size) * (forwards ? parameters.receive_depth : parameters.raw->frames());
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t cycle = forwards ? round : (page + round - 1) / round * round;
  if (cycle > kMaxBuffer) throw std::runtime_error("-s: that many frames of this size need more than 1 GiB");
  return {static_cast<std::uint32_t>(cycle), kCacheLine};
}

// Takes a queue pair to a state. `mask`: further attributes.
void change(const verbena::qp& pair, ibv_qp_state state, ibv_qp_attr wanted = {}, int mask = 0) {
  wanted.qp_state = state;
  pair.modify(wanted, IBV_QP_STATE | mask).value();
}

class RawSession {
 public:
  explicit RawSession(Parameters parameters)
      : parameters_(fitted(std::move(parameters))),
        report_(parameters_),
        json_(parameters_),
        device_(parameters_),
        endpoint_(device_, parameters_, layout_of(parameters_)) {
    make_pairs();
    report_.settings(device_, mtu_of(parameters_), device_.inline_size);
    json_.begin(device_, mtu_of(parameters_), sent_frame(parameters_, 0));
    if (parameters_.receives()) show_flows();
    if (parameters_.sends() && !parameters_.raw->forwards) write_frames();
    activate();
  }

  Outcome run() {
    report_.heading();
    if (parameters_.is_latency()) {
      run_latency();
    } else {
      run_bandwidth();
    }
    report_.line();
    std::this_thread::sleep_for(std::chrono::seconds(parameters_.wait_before_end));
    return {json_.whole(), is_good_};
  }

 private:
  static Parameters fitted(Parameters parameters) {
    fit_to_frame(parameters);
    return parameters;
  }

  void make_pairs() {
    try {
      for (std::uint32_t i = 0; i < parameters_.queue_pairs; ++i) endpoint_.make_pair();
    } catch (const verbena::exception& wrong) {
      if (wrong.error().code() != EPERM) throw;
      throw std::runtime_error("raw Ethernet needs the capability CAP_NET_RAW: run this as root");
    }
  }

  void show_flows() const {
    if (!parameters_.shows_tables()) return;
    for (std::uint32_t flow = 0; flow < parameters_.raw->flows; ++flow)
      print_flow(received_frame(parameters_, flow));
  }

  // Fills the buffers with frames, and shows the first one of each flow.
  void write_frames() {
    const std::uint64_t step = endpoint_.layout().step(parameters_.size);
    const std::uint64_t count = endpoint_.layout().length(parameters_.size);
    const std::uint32_t each_flow = parameters_.raw->flow_burst;
    for (std::size_t i = 0; i < endpoint_.count(); ++i) {
      for (std::uint64_t k = 0; k < count; ++k) {
        const FrameFields fields = sent_frame(parameters_, static_cast<std::uint32_t>(k));
        const verbena::slice frame =
            endpoint_.send_buffer(i).part(k * step, parameters_.size - kFrameCheckBytes);
        write_headers(frame.bytes(), fields);
        const bool is_first = k % each_flow == 0 && k / each_flow < parameters_.raw->flows;
        if (is_first && parameters_.shows_tables()) print_frame(frame.bytes(), fields);
      }
    }
  }

  // Receives are posted before any frame can come.
  void activate() {
    ibv_qp_attr wanted{};
    wanted.port_num = parameters_.device_port;
    for (std::size_t i = 0; i < endpoint_.count(); ++i)
      change(endpoint_.pair(i), IBV_QPS_INIT, wanted, IBV_QP_PORT);
    if (parameters_.receives()) {
      endpoint_.post_receives(parameters_.size);
      for (std::size_t i = 0; i < endpoint_.count(); ++i) attach_flows(endpoint_.pair(i));
    }
    for (std::size_t i = 0; i < endpoint_.count(); ++i) {
      change(endpoint_.pair(i), IBV_QPS_RTR);
      wanted.rate_limit = parameters_.raw->pacing;
      change(endpoint_.pair(i), IBV_QPS_RTS, wanted, wanted.rate_limit != 0 ? IBV_QP_RATE_LIMIT : 0);
    }
  }

  void attach_flows(const verbena::qp& pair) {
    const RawSettings& raw = *parameters_.raw;
    for (std::uint32_t flow = 0; flow < raw.flows; ++flow)
      flows_.push_back(FlowRule(received_frame(parameters_, flow), parameters_.device_port).attach(pair));
    if (raw.takes_all)
      flows_.push_back(FlowRule(IBV_FLOW_ATTR_ALL_DEFAULT, parameters_.device_port).attach(pair));
    if (raw.sniffs) flows_.push_back(FlowRule(IBV_FLOW_ATTR_SNIFFER, parameters_.device_port).attach(pair));
  }

  double speed() const { return clock_.ticks_per_microsecond(); }

  void run_latency() {
    const auto measure = parameters_.is_burst_latency() ? measure_burst_latency : measure_latency;
    processor_.start();
    const LatencyTimes times = measure(endpoint_, parameters_, parameters_.size);
    processor_.stop();
    if (parameters_.is_burst_latency() && !parameters_.initiates()) return;
    LatencyFigures figures = latency_figures(times, parameters_, parameters_.size, speed());
    figures.processor_time = processor_.time_of_each(figures.iterations);
    report_.row(figures, processor_);
    json_.add(figures);
  }

  void run_bandwidth() {
    processor_.start();
    const auto show = [&](const BandwidthTimes& times) {
      processor_.stop();
      BandwidthFigures figures = bandwidth_figures(times, parameters_, parameters_.size, speed());
      figures.processor_time = processor_.time_of_each(figures.iterations);
      report_.row(figures, processor_);
      is_good_ = report_.check_limits(figures);
      if (!parameters_.is_endless()) json_.add(figures);
      processor_.start();
    };
    show(parameters_.raw->forwards ? forward_frames(endpoint_, parameters_)
                                   : measure_bandwidth(endpoint_, parameters_, parameters_.size, show));
  }

  const Parameters parameters_;
  const Clock clock_;
  Report report_;
  JsonReport json_;
  const Device device_;
  Endpoint endpoint_;
  std::vector<Flow> flows_;  // behind the endpoint: they end before its queue pairs
  ProcessorUse processor_;
  bool is_good_ = true;
};

}  // namespace

Outcome run_raw_test(Parameters parameters) {
  return RawSession(std::move(parameters)).run();
}

}  // namespace verbena::perf
