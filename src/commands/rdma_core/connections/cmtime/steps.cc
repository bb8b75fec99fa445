// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/cmtime/steps.h"

#include <algorithm>

namespace verbena::rdma_core {
namespace {

constexpr std::array<const char*, kConnectSteps> kNames = {"create id",     "bind addr", "resolve addr",
                                                           "resolve route", "create qp", "connect",
                                                           "disconnect",    "destroy"};

// Shown as the shortest duration if no connection completed a step.
constexpr double kNone = 1e9;

}  // namespace

std::optional<double> Span::microseconds() const {
  if (!begun || !done) return std::nullopt;
  return std::chrono::duration<double, std::micro>(*done - *begun).count();
}

std::vector<StepTimes> evaluate(const Spans& whole, const std::vector<Spans>& connections, bool with_bind) {
  std::vector<StepTimes> steps;
  for (size_t i = 0; i < kConnectSteps; ++i) {
    if (i == static_cast<size_t>(ConnectStep::kBind) && !with_bind) continue;
    const double total = whole[i].microseconds().value_or(0);
    const double each = connections.empty() ? 0 : total / static_cast<double>(connections.size());
    StepTimes times = {kNames[i], total, 0, kNone, each};
    for (const Spans& connection : connections) {
      const auto took = connection[i].microseconds();
      if (!took) continue;
      times.longest = std::max(times.longest, *took);
      times.shortest = std::min(times.shortest, *took);
    }
    steps.push_back(times);
  }
  return steps;
}

void report(const std::vector<StepTimes>& steps, Output& output) {
  output.text("step              total ms     max ms     min us  us / conn\n");
  auto& list = output.object()["steps"] = nlohmann::ordered_json::array();
  for (const StepTimes& step : steps) {
    output.text("%-13s: %11.2f%11.2f%11.2f%11.2f\n", step.name, step.total / 1000, step.longest / 1000,
                step.shortest, step.each);
    nlohmann::ordered_json object = {{"step", step.name}, {"total_usec", step.total}};
    if (step.shortest < kNone) {
      object["max_usec"] = step.longest;
      object["min_usec"] = step.shortest;
    }
    object["usec_per_connection"] = step.each;
    list.push_back(object);
  }
}

}  // namespace verbena::rdma_core
