// SPDX-License-Identifier: Apache-2.0

#include "commands/verbena/metrics.h"

#include <CLI/CLI.hpp>

#include "base/format.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/report.h"
#include "control/client/command_client.h"

namespace verbena::commands {
namespace {

constexpr const char* kMetricsExamples =
    "Examples:\n"
    "  verbena metrics                          once, to standard output: for node_exporter's textfile\n"
    "  verbena metrics --listen 127.0.0.1:9792  over HTTP, until Ctrl-C, at http://127.0.0.1:9792/metrics\n"
    "  verbena agent --metrics 127.0.0.1:9792   the same, together with an agent\n"
    "  verbena metrics --listen unix:FILE       at a Unix socket\n"
    "\n"
    "Over HTTP everybody may read sums over all processes. Root and your own user see each process,\n"
    "but only at a Unix socket, where the kernel knows the user. 'verbena metrics' alone prints each, too.\n"
    "\n"
    "Starts no agent: without one, verbena_agent_up is 0. " VERBENA_DOCDIR
    "/watching.md has the metrics;\n"
    "there is a Grafana board beside it.\n";

MetricsTexts texts_of(const std::optional<control::AgentStatus>& status) {
  const auto health = status ? health_of(status->pid) : std::nullopt;
  return {.all = metrics_as_text(status, health, MetricsDetail::kProcesses),
          .sums = metrics_as_text(status, health, MetricsDetail::kSums)};
}

control::AdminResult<MetricsTexts> ask_for_metrics() {
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  if (!admin && is_absence(admin.error())) return texts_of(std::nullopt);
  if (!admin) return tl::unexpected(admin.error());
  const auto status = (*admin)->status();
  if (!status) return tl::unexpected(status.error());
  return texts_of(*status);
}

int print_once() {
  const auto metrics = ask_for_metrics();
  if (!metrics) return report(metrics.error());
  verbena::print("{}", metrics->all);
  return kDone;
}

int listen(const std::string& where) {
  auto listener = listen_at(where);
  if (!listener) return complain("{}", listener.error());
  serve_metrics(std::move(*listener));
}

}  // namespace

void serve_metrics(UniqueFd listener) {
  // An agent that does not answer is reported as absent.
  MetricsServer server(std::move(listener), [] {
    auto metrics = ask_for_metrics();
    return metrics ? std::move(*metrics) : texts_of(std::nullopt);
  });
  while (true) server.step(std::chrono::hours(1));
}

void add_metrics(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("metrics", "Print the agent's numbers for Prometheus");
  explain(*command, "verbena metrics [--listen ADDRESS:PORT|unix:PATH]", kMetricsExamples);
  const auto where = std::make_shared<std::string>();
  command->add_option("--listen", *where, "serve them over HTTP there instead")->type_name("PLACE");
  command->callback([where, &status] { status = where->empty() ? print_once() : listen(*where); });
}

}  // namespace verbena::commands
