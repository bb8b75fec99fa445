// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <CLI/CLI.hpp>
#include <sys/prctl.h>
#include <unistd.h>

#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/installation.h"
#include "commands/verbena/metrics.h"
#include "commands/verbena/report.h"

namespace verbena::commands {
namespace {

constexpr const char* kAgentExamples =
    "Programs start an agent when they need one; it leaves when nothing needs it any more. Run one yourself "
    "to\n"
    "see what it does, or as root to serve all users of this machine (of this network namespace).\n"
    "\n"
    "Examples:\n"
    "  verbena agent                            until Ctrl-C; VERBENA_LOG=debug tells more\n"
    "  sudo verbena agent                       for every user\n"
    "  verbena agent --metrics 127.0.0.1:9792   numbers for Prometheus, too\n"
    "                                           (" VERBENA_DOCDIR
    "/watching.md)\n"
    "  sudo verbena agent --serve-only alice    for root and alice: packets reach alice's programs quicker\n";

// Forks a child that serves metrics at `where` and ends with the agent (PR_SET_PDEATHSIG). Returns false,
// after a message, if it cannot listen or fork.
bool start_metrics(const std::string& where) {
  auto listener = listen_at(where);
  if (!listener) {
    complain("{}", listener.error());
    return false;
  }
  const pid_t agent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    complain("cannot start what serves metrics: {}", std::strerror(errno));
    return false;
  }
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != agent) ::_exit(kFailed);
    serve_metrics(std::move(*listener));
  }
  return true;
}

int exec_agent(const std::string& only_user, bool no_discovery, const std::string& metrics) {
  const auto installation = Installation::of_this_program();
  if (!installation) return complain_of_no_installation();
  if (installation->agent.empty()) {
    return complain("verbena-agent is not beside this program: is it copied out of its installation?");
  }
  if (!metrics.empty() && !start_metrics(metrics)) return kFailed;
  // A user who starts an agent in the foreground wants to see what it does.
  setenv("VERBENA_LOG", "info", 0);
  std::string program = installation->agent.string();
  std::string foreground = "--foreground";
  std::string only = "--serve-only=" + only_user;
  std::string alone = "--no-discovery";
  std::vector<char*> arguments = {program.data(), foreground.data()};
  if (!only_user.empty()) arguments.push_back(only.data());
  if (no_discovery) arguments.push_back(alone.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  return complain("cannot run '{}': {}", program, std::strerror(errno));
}

}  // namespace

void add_agent(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("agent", "Run the agent here, in the foreground");
  explain(*command, "verbena agent [--serve-only USER] [--no-discovery] [--metrics ADDRESS:PORT|unix:PATH]",
          kAgentExamples);
  const auto only_user = std::make_shared<std::string>();
  command
      ->add_option("--serve-only", *only_user,
                   "As root: serve root and this user, and nobody else, both with sockets of their own")
      ->type_name("USER");
  const auto no_discovery = std::make_shared<bool>(false);
  command->add_flag("--no-discovery", *no_discovery,
                    "Do not look for the agents of other hosts, and do not let them know of this one");
  const auto metrics = std::make_shared<std::string>();
  command
      ->add_option("--metrics", *metrics,
                   "serve its numbers there for Prometheus, over HTTP, by a process beside the agent")
      ->type_name("PLACE");
  command->callback([&status, only_user, no_discovery, metrics] {
    status = exec_agent(*only_user, *no_discovery, *metrics);
  });
}

}  // namespace verbena::commands
