// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/session.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/format.h"
#include "commands/perf/bandwidth.h"
#include "commands/perf/clock.h"
#include "commands/perf/cm_pairs.h"
#include "commands/perf/device.h"
#include "commands/perf/endpoint.h"
#include "commands/perf/exchange.h"
#include "commands/perf/figures.h"
#include "commands/perf/hangup_watch.h"
#include "commands/perf/json_report.h"
#include "commands/perf/latency.h"
#include "commands/perf/report.h"
#include "commands/perf/verify.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

// The sizes of a test: with --all the powers of two up to its largest size.
std::vector<std::uint64_t> sizes_of(const Parameters& parameters) {
  if (parameters.extent != Extent::kAllSizes || parameters.is(Verb::kAtomic)) return {parameters.size};
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = 2; size <= parameters.size; size *= 2) sizes.push_back(size);
  return sizes;
}

// A datagram is at most one packet.
void fit_to_mtu(Parameters& parameters, ibv_mtu mtu) {
  const std::uint64_t most = bytes_of(mtu);
  if (!parameters.is_datagram() || parameters.size <= most) return;
  if (parameters.has_size && parameters.extent != Extent::kAllSizes) {
    throw std::runtime_error(verbena::format("-s: a datagram has at most {} bytes, the path MTU", most));
  }
  rdma_core::complain(verbena::format(" Max msg size in UD is MTU {}", most));
  rdma_core::complain(" Changing to this MTU");
  parameters.size = most;
}

// The steps of a test, with the exchanges in the order of perftest's programs.
class Session {
 public:
  Session(Parameters parameters, std::unique_ptr<Channel> channel, bool has_versions)
      : parameters_(std::move(parameters)),
        report_(parameters_),
        json_(parameters_),
        device_(parameters_),
        exchange_(std::in_place, std::move(channel), parameters_.is_client()) {
    ibv_mtu mtu = device_.mtu(parameters_);
    Layout layout{static_cast<std::uint32_t>(::sysconf(_SC_PAGESIZE)), 64};
    if (parameters_.exchanges_versions) {
      if (!has_versions) exchange_->versions();
      exchange_->layout(layout.cycle, layout.cache_line);
      mtu = exchange_->mtu(mtu);
    }
    fit_to_mtu(parameters_, mtu);
    if (parameters_.uses_cm) {
      connect_by_cm(layout);
    } else {
      endpoint_.emplace(device_, parameters_, layout);
      for (std::uint32_t i = 0; i < parameters_.pairs_made(); ++i) endpoint_->make_pair();
    }
    exchange_keys(mtu);
  }

  Outcome run() {
    if (parameters_.is_latency()) {
      run_latency();
    } else {
      run_bandwidth();
    }
    std::this_thread::sleep_for(std::chrono::seconds(parameters_.wait_before_end));
    return {json_.whole(), is_good_, std::move(shown_)};
  }

 private:
  // librdmacm chooses the device.
  void connect_by_cm(const Layout& layout) {
    CmPairs pairs(parameters_);
    exchange_->meet();
    const CmIdentifier& first = pairs.first();
    parameters_.device_port = first->port_num;
    device_ = Device(device_of(first), parameters_);
    endpoint_.emplace(device_, parameters_, layout);
    pairs.connect(*endpoint_,
                  parameters_.is(Verb::kRead) || parameters_.is(Verb::kAtomic) ? device_.reads : 0);
    exchange_->meet();
  }

  void exchange_keys(ibv_mtu mtu) {
    report_.settings(device_, bytes_of(mtu), device_.inline_size);
    if (parameters_.is_latency() && !parameters_.is(Verb::kSend)) exchange_->keys(endpoint_->keys(0));
    std::vector<Keys> peers;
    for (std::size_t i = 0; i < endpoint_->count(); ++i) peers.push_back(exchange_->keys(endpoint_->keys(i)));
    check_addresses(peers.front());
    json_.begin(device_, mtu, peers.front());
    for (std::size_t i = 0; i < endpoint_->count(); ++i)
      endpoint_->connect(i, peers[endpoint_->peer_of(i)], mtu);
    // A switch learns of the group's members in milliseconds. perftest waits, too.
    if (parameters_.is_multicast) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (parameters_.is(Verb::kSend)) exchange_->meet();
    for (std::size_t i = 0; i < endpoint_->count(); ++i) report_.address(endpoint_->keys(i), true);
    for (std::size_t i = 0; i < endpoint_->count(); ++i)
      report_.address(exchange_->keys(endpoint_->keys(i)), false);
    if (!parameters_.is(Verb::kSend)) exchange_->meet();
  }

  void check_addresses(const Keys& peer) const {
    if (parameters_.is_multicast) {  // the datagrams leave from an address of the group's kind
      if (parameters_.is_latency() && std::ranges::equal(peer.gid.raw, parameters_.group.raw))
        throw std::runtime_error("-M: the ends of a latency test need different groups");
      return;
    }
    if (verbena::is_ipv4(peer.gid) == verbena::is_ipv4(device_.gid.gid)) return;
    throw std::runtime_error(
        verbena::format("the ends have addresses of different kinds, {} here and {} there: choose GIDs by -x",
                        to_string(device_.gid.gid), to_string(peer.gid)));
  }

  double speed() const { return clock_.ticks_per_microsecond(); }

  // ---- latency

  void run_latency() {
    const bool goes_both_ways = parameters_.is(Verb::kSend) || parameters_.is(Verb::kWrite);
    if (!goes_both_ways && !parameters_.initiates()) {
      exchange_->close();
      check_target(*endpoint_, parameters_, parameters_.size);
      report_.line();
      return;
    }
    report_.heading();
    for (const std::uint64_t size : sizes_of(parameters_)) {
      if (parameters_.is(Verb::kSend)) {
        endpoint_->post_receives(size);
        exchange_->meet();
      }
      processor_.start();
      const LatencyTimes times = measure_latency(*endpoint_, parameters_, size);
      processor_.stop();
      check_fetched(*endpoint_, parameters_, size);
      if (goes_both_ways) check_target(*endpoint_, parameters_, size);
      LatencyFigures figures = latency_figures(times, parameters_, size, speed());
      figures.processor_time = processor_.time_of_each(figures.iterations);
      report_.row(figures, processor_);
      json_.add(figures);
    }
    if (!goes_both_ways) exchange_->close();
    report_.line();
    if (parameters_.is(Verb::kWrite)) exchange_->part();
    if (parameters_.is(Verb::kSend)) exchange_->close();
  }

  // ---- bandwidth

  void run_bandwidth() {
    report_.heading();
    if (parameters_.is(Verb::kSend)) {
      run_send_bandwidth();
    } else if (!parameters_.sends()) {
      exchange_->meet();
      check_target(*endpoint_, parameters_, sizes_of(parameters_).back());
      const BandwidthFigures peer = exchange_->figures({});
      show(peer);
      exchange_->close();
      report_.line();
    } else {
      run_one_sided_bandwidth();
    }
  }

  void run_send_bandwidth() {
    for (const std::uint64_t size : sizes_of(parameters_)) {
      if (parameters_.receives()) endpoint_->post_receives(size);
      exchange_->meet();
      const BandwidthFigures own = measure(size);
      if (parameters_.is_bidirectional && !parameters_.is_timed()) {
        show_both(own);
      } else {
        show(own);
      }
      if (parameters_.extent == Extent::kAllSizes) exchange_->meet();
    }
    report_.line();
    exchange_->close();
  }

  void run_one_sided_bandwidth() {
    BandwidthFigures own;
    for (const std::uint64_t size : sizes_of(parameters_)) {
      if (parameters_.warms_up) warm_up(*endpoint_, parameters_, size);
      if (parameters_.is_bidirectional && !parameters_.is_endless()) exchange_->meet();
      own = measure(size);
      check_fetched(*endpoint_, parameters_, size);
      const bool is_one_of_many = parameters_.extent == Extent::kAllSizes && !parameters_.is(Verb::kAtomic);
      if (parameters_.is_bidirectional && is_one_of_many) exchange_->meet();
      if (parameters_.is_bidirectional) {
        show_both(own);
        check_target(*endpoint_, parameters_, size);
      } else {
        show(own);
      }
    }
    report_.line();
    if (!parameters_.is_bidirectional) {
      exchange_->meet();
      exchange_->figures(own);
    }
    exchange_->close();
  }

  BandwidthFigures measure(std::uint64_t size) {
    processor_.start();
    if (parameters_.is_endless()) measure_endlessly(size);
    return figures_of(measure_bandwidth(*endpoint_, parameters_, size), size);
  }

  // The end of the peer, which is not seen in its queue pairs, is the end of this process.
  [[noreturn]] void measure_endlessly(std::uint64_t size) {
    const HangupWatch watch(exchange_->descriptor());
    measure_bandwidth(*endpoint_, parameters_, size, [&](const BandwidthTimes& times) {
      BandwidthFigures figures = figures_of(times, size);
      if (parameters_.is_bidirectional) {  // as perftest, which does not ask the peer
        figures.average *= 2;
        figures.rate *= 2;
      }
      report_.row(figures, processor_);
      processor_.start();
    });
    throw std::logic_error("an endless test has ended");
  }

  BandwidthFigures figures_of(const BandwidthTimes& times, std::uint64_t size) {
    processor_.stop();
    BandwidthFigures figures = bandwidth_figures(times, parameters_, size, speed());
    figures.processor_time = processor_.time_of_each(figures.iterations);
    return figures;
  }

  // Shows the sum of both directions.
  void show_both(const BandwidthFigures& own) {
    const BandwidthFigures peer = exchange_->figures(own);
    show({own.size, own.iterations, own.peak + peer.peak, own.average + peer.average, own.rate + peer.rate,
          own.processor_time, own.parts});
    if (parameters_.shows_both) report_.directions(own, peer, processor_);
  }

  void show(const BandwidthFigures& figures) {
    report_.row(figures, processor_);
    json_.add(figures);
    shown_.push_back(figures);
    if (!report_.check_limits(figures)) is_good_ = false;
  }

  Parameters parameters_;
  const Clock clock_;
  Report report_;
  JsonReport json_;
  Device device_;
  std::optional<Exchange> exchange_;
  std::optional<Endpoint> endpoint_;
  ProcessorUse processor_;
  std::vector<BandwidthFigures> shown_;
  bool is_good_ = true;
};

}  // namespace

Outcome run_test(Parameters parameters, std::unique_ptr<Channel> channel, bool has_versions) {
  return Session(std::move(parameters), std::move(channel), has_versions).run();
}

}  // namespace verbena::perf
