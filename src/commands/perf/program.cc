// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/program.h"

#include <stdexcept>
#include <utility>

#include "commands/perf/device.h"
#include "commands/perf/exchange.h"
#include "commands/perf/follower.h"
#include "commands/perf/json_report.h"
#include "commands/perf/plots.h"
#include "commands/perf/raw_session.h"
#include "commands/perf/report.h"
#include "commands/perf/session.h"
#include "commands/perf/sweep_run.h"

namespace verbena::perf {
namespace {

// A server learns the client's kind before anything else. Returns nullopt after it has followed orders.
std::optional<Outcome> serve(const Parameters& parameters, std::unique_ptr<Channel> channel) {
  if (!parameters.exchanges_versions || parameters.exchanges_by_cm)
    return run_test(parameters, std::move(channel), false);
  if (Exchange(borrow(*channel), false).versions() == PeerKind::kTakesOrders) {
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

}  // namespace

int run_program(const Parameters& parameters) {
  if (parameters.sweep && parameters.is_client()) return run_sweep(parameters);
  if (parameters.raw) return show(run_raw_test(parameters), parameters);
  Device{parameters};  // a device that cannot be used is reported before the peer is asked
  if (!parameters.is_client()) Report(parameters).waiting();
  auto channel = parameters.exchanges_by_cm ? connect_by_cm(parameters) : connect_by_tcp(parameters);
  const auto outcome = parameters.is_client() ? run_test(parameters, std::move(channel), false)
                                              : serve(parameters, std::move(channel));
  return outcome ? show(*outcome, parameters) : 0;
}

}  // namespace verbena::perf
