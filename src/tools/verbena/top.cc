// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "agent_client/admin.h"
#include "tools/verbena/commands.h"
#include "tools/verbena/help.h"
#include "tools/verbena/message.h"
#include "tools/verbena/top_screen.h"

namespace verbena::tools {
namespace {

constexpr const char* kTopExamples =
    "Examples:\n"
    "  verbena top                              live; h helps, q ends\n"
    "  verbena top --by qp --sort waiting       which queue pairs have work that waits\n"
    "  verbena top --batch --count 10           ten tables, one a second, as text\n"
    "\n"
    "Where standard output is no terminal it is as with --batch. Starts no agent.\n";

struct TopOptions {
  TopSettings settings;
  bool batch = false;
  unsigned count = 1;
  double interval = 1;
};

std::optional<agent_client::AgentStatus> status_now() {
  const auto admin = agent_client::Admin::connect({.start_agent = false, .agent_program = {}});
  if (!admin) return std::nullopt;
  auto status = (*admin)->status();
  if (!status) return std::nullopt;
  return std::move(*status);
}

int print_tables(const TopOptions& options) {
  auto before = status_now();
  for (unsigned i = 0; i < options.count; ++i) {
    if (!before) {
      fmt::print("No agent is running: nothing uses Verbena.\n");
      return kDone;
    }
    const auto began = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
    auto now = status_now();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (now) {
      for (const std::string& line : top_lines(*before, *now, seconds, options.settings))
        fmt::print("{}\n", line);
      if (i + 1 < options.count) fmt::print("\n");
      std::fflush(stdout);
    }
    before = std::move(now);
  }
  return kDone;
}

int run(const TopOptions& options) {
  const char* terminal = std::getenv("TERM");
  if (options.batch || ::isatty(STDOUT_FILENO) == 0 || ::isatty(STDIN_FILENO) == 0 || terminal == nullptr) {
    return print_tables(options);
  }
  show_top(status_now, options.settings,
           std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.interval)));
  return kDone;
}

}  // namespace

void add_top(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("top", "Watch processes, queue pairs and links live");
  explain(*command, "verbena top [--by process|qp|link] [--sort ORDER] [--filter TEXT] [--batch]",
          kTopExamples);
  const auto options = std::make_shared<TopOptions>();
  const std::map<std::string, TopView> views = {
      {"process", TopView::kProcesses}, {"qp", TopView::kQueuePairs}, {"link", TopView::kLinks}};
  std::map<std::string, TopOrder> orders;
  for (int i = 0; i < static_cast<int>(TopOrder::kCount); ++i) {
    orders[std::string(name_of(static_cast<TopOrder>(i)))] = static_cast<TopOrder>(i);
  }
  command->add_option("--by", options->settings.view, "process (default), qp or link")
      ->transform(CLI::CheckedTransformer(views));
  command
      ->add_option("--sort", options->settings.order,
                   "bytes (default), packets, retransmissions, rnrs, waiting")
      ->transform(CLI::CheckedTransformer(orders));
  command->add_option("--filter", options->settings.filter, "only rows with this in a name");
  command->add_option("--interval", options->interval, "seconds between looks, 0.1 to 60 (default 1)")
      ->check(CLI::Range(0.1, 60.0));
  command->add_flag("--batch", options->batch, "print tables as text");
  command->add_option("--count", options->count, "with --batch: how many tables (default 1)")
      ->check(CLI::Range(1, 1'000'000));
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace verbena::tools
