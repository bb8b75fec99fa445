// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include <CLI/CLI.hpp>
#include <poll.h>
#include <unistd.h>

#include "base/command_line/command_line.h"
#include "base/format.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/end_signals.h"
#include "commands/verbena/help.h"
#include "commands/verbena/report.h"
#include "commands/verbena/top_table.h"
#include "control/client/command_client.h"

namespace verbena::commands {

using namespace command_line;

namespace {

constexpr const char* kTopExamples =
    "Examples:\n"
    "  verbena top                              live; h helps, q ends\n"
    "  verbena top --by qp --sort waiting       which queue pairs have work that waits\n"
    "  verbena top --batch --count 10           ten tables, one a second, as text, each with its time\n"
    "\n"
    "Where standard output is no terminal it is as with --batch. Starts no agent.\n";

struct TopOptions {
  TopSettings settings;
  bool batch = false;
  unsigned count = 1;
  double interval = 1;
};

control::AdminResult<control::AgentStatus> status_now() {
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  if (admin) return (*admin)->status();
  control::AdminError error = admin.error();
  if (is_absence(error)) error.text = describe_absence();
  return tl::unexpected(std::move(error));
}

// The current local time, such as "2026-11-28 02:31:07".
std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::array<char, 32> text{};
  ::localtime_r(&now, &local);
  return std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local) != 0 ? text.data() : "?";
}

int print_tables(const TopOptions& options) {
  const EndSignals signals;
  const auto pause = [&] {
    pollfd entry{signals.fd(), POLLIN, 0};
    return ::poll(&entry, 1, static_cast<int>(options.interval * 1000)) == 0;
  };
  auto before = status_now();
  for (unsigned i = 0; i < options.count; ++i) {
    if (!before && is_absence(before.error())) {
      verbena::print("{}\n", before.error().text);
      return kDone;
    }
    if (!before) return report(before.error());
    const auto began = std::chrono::steady_clock::now();
    if (!pause()) return kDone;
    auto now = status_now();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (now) {
      verbena::print("{}\n", time_now());
      for (const std::string& line : top_lines(*before, *now, seconds, options.settings))
        verbena::print("{}\n", line);
      if (i + 1 < options.count) verbena::print("\n");
      if (std::fflush(stdout) != 0) {
        return complain("cannot write the table to standard output: {}", std::strerror(errno));
      }
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

// Indexed by TopView.
std::vector<std::string> names_of_views() {
  return {"process", "qp", "link"};
}

std::vector<std::string> names_of_orders() {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(TopOrder::kCount); ++i) {
    names.emplace_back(name_of(static_cast<TopOrder>(i)));
  }
  return names;
}

// Adds an option whose value is one of `names`, listed in the order of the enumerators.
template <class Enum>
void add_choice(CLI::App& command, const std::string& option, const std::string& help,
                const std::vector<std::string>& names, Enum& chosen) {
  const auto take = [names, &chosen](const std::string& word) {
    chosen = static_cast<Enum>(std::ranges::find(names, word) - names.begin());
  };
  command.add_option_function<std::string>(option, take, help)
      ->transform(one_of(names))
      ->type_name(choice(names));
}

}  // namespace

void add_top(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("top", "Watch processes, queue pairs and links live");
  explain(*command, "verbena top [--by process|qp|link] [--sort ORDER] [--filter TEXT] [--batch]",
          kTopExamples);
  const auto options = std::make_shared<TopOptions>();
  add_choice(*command, "--by", "a row for each of these (default: process)", names_of_views(),
             options->settings.view);
  add_choice(*command, "--sort", "the largest of these first (default: bytes)", names_of_orders(),
             options->settings.order);
  command->add_option("--filter", options->settings.filter, "only rows with this in a name")
      ->type_name("TEXT");
  command->add_option("--interval", options->interval, "time between looks, 0.1 to 60 (default 1)")
      ->transform(decimal_number("a number of seconds from 0.1 to 60", 0.1, 60))
      ->type_name("SECONDS");
  command->add_flag("--batch", options->batch, "print tables as text");
  command->add_option("--count", options->count, "with --batch: how many tables (default 1)")
      ->transform(whole_number("a number of tables from 1 to 1000000", 1, 1'000'000))
      ->type_name("TABLES");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace verbena::commands
