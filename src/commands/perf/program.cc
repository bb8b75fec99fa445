// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/program.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/unique_fd.h"
#include "commands/perf/device.h"
#include "commands/perf/exchange.h"
#include "commands/perf/follower.h"
#include "commands/perf/json_report.h"
#include "commands/perf/plots.h"
#include "commands/perf/raw_session.h"
#include "commands/perf/report.h"
#include "commands/perf/session.h"
#include "commands/perf/sweep_run.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

// A server learns the client's kind before anything else. Returns nullopt after it has followed orders.
std::optional<Outcome> serve(const Parameters& parameters, std::unique_ptr<Channel> channel) {
  if (!parameters.exchanges_versions || parameters.exchanges_by_cm)
    return run_test(parameters, std::move(channel), false);
  if (Exchange(borrow(*channel), false).versions() == PeerKind::kTakesOrders) {
    if (parameters.clients > 1)
      throw std::runtime_error("--clients: it has a sweep, which needs a server for itself");
    follow_orders(*channel, parameters);
    return std::nullopt;
  }
  if (parameters.sweep)
    throw std::runtime_error("--sweep: the client has none: perftest's programs run one test only");
  return run_test(parameters, std::move(channel), true);
}

// Shows what the tables do not. Returns the exit status.
int show(const Outcome& outcome, const Parameters& parameters) {
  if (parameters.json) print_json(outcome.report);
  if (parameters.plots) plot(outcome.report, parameters);
  return outcome.is_good ? 0 : 1;
}

// Adds the figures of each size. The peaks of several clients have no sum: they are at different times.
void add(std::vector<BandwidthFigures>& sums, const std::vector<BandwidthFigures>& figures) {
  sums.resize(std::max(sums.size(), figures.size()));
  for (std::size_t i = 0; i < figures.size(); ++i) {
    sums[i].size = figures[i].size;
    sums[i].iterations += figures[i].iterations;
    sums[i].average += figures[i].average;
    sums[i].rate += figures[i].rate;
  }
}

// Serves several clients, each in a thread of its own. All begin when the last has connected, since a client
// waits for the server's first answer. Returns the exit status.
int serve_clients(const Parameters& parameters) {
  const UniqueFd listener = listen_by_tcp(parameters);
  std::vector<std::unique_ptr<Channel>> channels;
  while (channels.size() < parameters.clients) channels.push_back(channel_over(accept_client(listener)));
  Parameters quiet = parameters;
  quiet.is_quiet = true;
  ProcessorUse processor;
  processor.start();
  std::vector<std::future<std::optional<Outcome>>> tests;
  for (auto& each : channels)
    tests.push_back(std::async(std::launch::async, [&quiet, channel = std::move(each)]() mutable {
      return serve(quiet, std::move(channel));
    }));
  for (const auto& each : tests) each.wait();
  processor.stop();

  const Report report(parameters);
  report.heading();
  const auto show = [&](const std::string& whose, const std::vector<BandwidthFigures>& figures) {
    if (parameters.shows_tables()) std::printf("%s\n", whose.c_str());
    for (const BandwidthFigures& each : figures) report.row(each, processor);
  };
  bool is_good = true;
  std::vector<BandwidthFigures> sums;
  nlohmann::ordered_json reports = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < tests.size(); ++i) {
    try {
      Outcome outcome = tests[i].get().value();
      show(verbena::format("client {}, {}:", i + 1, outcome.report["peer_gid"].get<std::string>()),
           outcome.bandwidths);
      add(sums, outcome.bandwidths);
      is_good &= outcome.is_good;
      reports.push_back(std::move(outcome.report));
    } catch (const std::exception& wrong) {
      rdma_core::complain(verbena::format("client {}: {}", i + 1, wrong.what()));
      is_good = false;
    }
  }
  show(verbena::format("all {}:", reports.size()), sums);
  report.line();
  JsonReport sum(parameters);
  for (const BandwidthFigures& each : sums) sum.add(each);
  if (parameters.json) print_json({{"clients", reports}, {"sum", sum.whole()["results"]}});
  return is_good ? 0 : 1;
}

}  // namespace

int run_program(const Parameters& parameters) {
  if (parameters.sweep && parameters.is_client()) return run_sweep(parameters);
  if (parameters.raw) return show(run_raw_test(parameters), parameters);
  Device{parameters};  // a device that cannot be used is reported before the peer is asked
  if (!parameters.is_client()) Report(parameters).waiting();
  if (parameters.clients > 1) return serve_clients(parameters);
  auto channel = parameters.exchanges_by_cm ? connect_by_cm(parameters) : connect_by_tcp(parameters);
  const auto outcome = parameters.is_client() ? run_test(parameters, std::move(channel), false)
                                              : serve(parameters, std::move(channel));
  return outcome ? show(*outcome, parameters) : 0;
}

}  // namespace verbena::perf
