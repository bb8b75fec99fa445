// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "agent_client/admin.h"
#include "tools/verbena/commands.h"
#include "tools/verbena/help.h"
#include "tools/verbena/message.h"
#include "tools/verbena/status_filter.h"
#include "tools/verbena/status_json.h"
#include "tools/verbena/status_text.h"

namespace verbena::tools {
namespace {

constexpr const char* kStatusExamples =
    "Examples:\n"
    "  verbena status                           links, and a line for each process\n"
    "  verbena status -v                        GIDs, queue pairs, paths, counters, too\n"
    "  verbena status -v --qp 0x4011            all of one queue pair\n"
    "  verbena status --link rxe_eth0 --state RTS\n"
    "  verbena status --json                    for programs\n"
    "\n"
    "Shows what is there and starts nothing: without a running agent there is nothing to show.\n";

bool no_agent(const agent_client::AdminError& error) {
  return error.code == ECONNREFUSED || error.code == ENOENT;
}

struct StatusOptions {
  bool json = false;
  bool verbose = false;
  StatusFilter filter;
};

int show(const StatusOptions& options) {
  std::optional<agent_client::AgentStatus> status;
  const auto admin = agent_client::Admin::connect({.start_agent = false, .agent_program = {}});
  if (admin) {
    auto answer = (*admin)->status();
    if (!answer) {
      complain("{}", answer.error().text);
      return kFailed;
    }
    status = only(std::move(*answer), options.filter);
  } else if (!no_agent(admin.error())) {
    complain("{}", admin.error().text);
    return kFailed;
  }
  if (options.json) {
    fmt::print("{}", status_as_json(status));
  } else if (status && options.filter.wants_processes() && status->slots.empty()) {
    fmt::print("No process is like that.\n");
  } else if (status) {
    fmt::print("{}", options.verbose ? status_as_text(*status) : summary_as_text(*status));
  } else {
    fmt::print(
        "No agent is running: nothing uses Verbena. The first program under 'verbena run' starts one.\n");
  }
  return kDone;
}

}  // namespace

void add_status(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("status", "Show links, GIDs, processes, queue pairs, counters");
  explain(*command, "verbena status [OPTION...]", kStatusExamples);
  const auto options = std::make_shared<StatusOptions>();
  StatusFilter& filter = options->filter;
  command->add_flag("-v,--verbose", options->verbose,
                    "GIDs, queue pairs, paths and all that is counted, too");
  command->add_flag("--json", options->json, "one JSON object, for programs");
  command->add_option("--link", filter.links, "only what is of this link; may be said several times");
  command->add_option("--pid", filter.pids, "only this process, likewise");
  command->add_option("--program", filter.programs, "only processes of this name, likewise");
  command->add_option("--qp", filter.qpns, "only this queue pair: its number, as 0x4011; likewise");
  command
      ->add_option("--state", filter.states, "only queue pairs in this state, such as RTS or ERR; likewise")
      ->check(CLI::IsMember({"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}, CLI::ignore_case));
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() > 1)
      option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  command->callback([options, &status] { status = show(*options); });
}

}  // namespace verbena::tools
