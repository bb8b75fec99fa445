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
#include "tools/verbena/status_json.h"
#include "tools/verbena/status_text.h"

namespace verbena::tools {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  verbena status                           for people\n"
    "  verbena status --json                    for programs\n"
    "\n"
    "Shows what is there and starts nothing: without a running agent there is nothing to show.\n";

bool no_agent(const agent_client::AdminError& error) {
  return error.code == ECONNREFUSED || error.code == ENOENT;
}

int show(bool json) {
  std::optional<agent_client::AgentStatus> status;
  const auto admin = agent_client::Admin::connect({.start_agent = false, .agent_program = {}});
  if (admin) {
    auto answer = (*admin)->status();
    if (!answer) {
      complain("{}", answer.error().text);
      return kFailed;
    }
    status = std::move(*answer);
  } else if (!no_agent(admin.error())) {
    complain("{}", admin.error().text);
    return kFailed;
  }
  if (json) {
    fmt::print("{}", status_as_json(status));
  } else if (status) {
    fmt::print("{}", status_as_text(*status));
  } else {
    fmt::print(
        "No agent is running: nothing uses Verbena. The first program under 'verbena run' starts one.\n");
  }
  return kDone;
}

}  // namespace

void add_status(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("status", "Show links, GIDs, processes, queue pairs, counters");
  explain(*command, "verbena status [--json]", kExamples);
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "one JSON object, for programs");
  command->callback([json, &status] { status = show(*json); });
}

}  // namespace verbena::tools
