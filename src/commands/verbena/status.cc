// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <CLI/CLI.hpp>
#include <strings.h>

#include "adapter/queues/status_words.h"
#include "base/command_line/command_line.h"
#include "base/format.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/names.h"
#include "commands/verbena/report.h"
#include "commands/verbena/status_output.h"
#include "control/client/command_client.h"

namespace verbena::commands {

using namespace command_line;

namespace {

using control::AgentStatus;
using control::LinkStatus;
using control::QpNumbers;
using control::SlotStatus;

constexpr const char* kStatusExamples =
    "Examples:\n"
    "  verbena status                           links, and a line for each process\n"
    "  verbena status -v                        GIDs, queue pairs, paths, counters, too\n"
    "  verbena status -v --qp 0x4011            all of one queue pair\n"
    "  verbena status --link rxe_eth0 --state RTS\n"
    "  verbena status --json                    for programs\n"
    "\n"
    "Shows what is there and starts nothing: without a running agent there is nothing to show.\n";

struct StatusOptions {
  bool json = false;
  bool verbose = false;
  StatusFilter filter;
};

// Explains why no process passes the filter. REQUIRES: none does.
std::string why_no_process(const StatusFilter& filter) {
  const int kinds = !filter.pids.empty() + !filter.programs.empty() + !filter.qpns.empty() +
                    !filter.states.empty() + !filter.links.empty();
  if (kinds > 1) return "no process matches all of these options; 'verbena status' lists the processes";
  if (!filter.programs.empty())
    return verbena::format("no process named '{}' (exact match); 'verbena status' lists the processes",
                           printable(verbena::join(filter.programs, "' or '")));
  if (!filter.pids.empty())
    return verbena::format("process {} does not use Verbena; 'verbena status' lists those that do",
                           verbena::join(filter.pids, ", "));
  if (!filter.qpns.empty())
    return verbena::format("no queue pair {}; 'verbena status -v' lists the queue pairs",
                           verbena::join(filter.qpns, ", ", "{:#x}"));
  return verbena::format("no queue pair is in state {}; 'verbena status -v' lists the queue pairs",
                         verbena::join(filter.states, " or "));
}

int show(const StatusOptions& options) {
  std::optional<control::AgentStatus> status;
  const auto admin = control::Admin::connect({.start_agent = false, .agent_program = {}});
  if (admin) {
    auto answer = (*admin)->status();
    if (!answer) return report(answer.error());
    for (const std::string& name : options.filter.links) {
      if (!find_link(*answer, name)) return kFailed;
    }
    status = only(std::move(*answer), options.filter);
    if (options.filter.wants_processes() && status->slots.empty() && !options.json) {
      return complain("{}", why_no_process(options.filter));
    }
  } else if (!is_absence(admin.error())) {
    return report(admin.error());
  }
  if (options.json) {
    verbena::print("{}", status_as_json(status));
  } else if (status) {
    verbena::print("{}", options.verbose ? status_as_text(*status) : summary_as_text(*status));
  } else {
    verbena::print("{}\n", describe_absence());
  }
  return kDone;
}

template <class Value>
bool is_among(const std::vector<Value>& wanted, const Value& value) {
  return wanted.empty() || std::ranges::find(wanted, value) != wanted.end();
}

bool is_state_among(const std::vector<std::string>& wanted, const std::string& state) {
  return wanted.empty() || std::ranges::any_of(wanted, [&](const std::string& one) {
           return ::strcasecmp(one.c_str(), state.c_str()) == 0;
         });
}

}  // namespace

AgentStatus only(AgentStatus status, const StatusFilter& filter) {
  if (filter.wants_all()) return status;
  const bool wants_qps = filter.wants_queue_pairs() || !filter.links.empty();
  std::erase_if(status.slots, [&](SlotStatus& slot) {
    std::erase_if(slot.qps, [&](const QpNumbers& qp) {
      return !is_among(filter.links, link_name_of(status, qp)) || !is_among(filter.qpns, qp.qpn) ||
             !is_state_among(filter.states, qp_state_name(qp.state));
    });
    return !is_among(filter.pids, slot.pid) || !is_among(filter.programs, slot.program) ||
           (wants_qps && slot.qps.empty());
  });
  std::erase_if(status.links, [&](const LinkStatus& one) { return !is_among(filter.links, one.link.name); });
  status.connection_management = {};
  return status;
}

void add_status(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("status", "Show links, GIDs, processes, queue pairs, counters");
  explain(*command, "verbena status [OPTION...]", kStatusExamples);
  const auto options = std::make_shared<StatusOptions>();
  StatusFilter& filter = options->filter;
  command->add_flag("-v,--verbose", options->verbose,
                    "GIDs, queue pairs, paths and all that is counted, too");
  command->add_flag("--json", options->json, "one JSON object, for programs");
  command->add_option("--link", filter.links, "only what is of this link; can be given several times")
      ->type_name("NAME");
  command->add_option("--pid", filter.pids, "only this process, likewise")
      ->transform(process_id())
      ->type_name("PID");
  command->add_option("--program", filter.programs, "only processes of exactly this name, likewise")
      ->type_name("NAME");
  command->add_option("--qp", filter.qpns, "only this queue pair: its number, as 0x4011; likewise")
      ->transform(qp_number())
      ->type_name("QPN");
  const std::vector<std::string> states(queues::kQpStates.begin(), queues::kQpStates.end());
  command->add_option("--state", filter.states, "only queue pairs in this state; likewise")
      ->transform(one_of(states))
      ->type_name(choice(states));
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() > 1)
      option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  command->callback([options, &status] { status = show(*options); });
}

}  // namespace verbena::commands
