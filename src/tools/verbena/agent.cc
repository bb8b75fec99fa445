// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "tools/verbena/commands.h"
#include "tools/verbena/help.h"
#include "tools/verbena/installation.h"
#include "tools/verbena/message.h"

namespace verbena::tools {
namespace {

constexpr const char* kExamples =
    "Programs start an agent when they need one; it leaves when nothing needs it any more. Run one yourself "
    "to\n"
    "see what it does, or as root to serve all users of this machine (of this network namespace).\n"
    "\n"
    "Examples:\n"
    "  verbena agent                            until Ctrl-C; VERBENA_LOG=debug tells more\n"
    "  sudo verbena agent                       for every user\n"
    "  sudo verbena agent --serve-only alice    for root and alice: packets reach alice's programs quicker\n";

int exec_agent(const std::string& only_user) {
  const auto installation = Installation::of_this_program();
  if (!installation || installation->agent.empty()) {
    complain("verbena-agent is not beside this program: is it copied out of its installation?");
    return kFailed;
  }
  // A user who starts an agent in the foreground wants to see what it does.
  setenv("VERBENA_LOG", "info", 0);
  std::string program = installation->agent.string();
  std::string foreground = "--foreground";
  std::string only = "--serve-only=" + only_user;
  char* arguments[] = {program.data(), foreground.data(), only_user.empty() ? nullptr : only.data(), nullptr};
  execv(program.c_str(), arguments);
  complain("cannot run '{}': {}", program, std::strerror(errno));
  return kFailed;
}

}  // namespace

void add_agent(CLI::App& verbena, int& status) {
  CLI::App* command = verbena.add_subcommand("agent", "Run the agent here, in the foreground");
  explain(*command, "verbena agent", kExamples);
  const auto only_user = std::make_shared<std::string>();
  command
      ->add_option("--serve-only", *only_user,
                   "As root: serve root and this user, and nobody else, both with sockets of their own")
      ->type_name("USER");
  command->callback([&status, only_user] { status = exec_agent(*only_user); });
}

}  // namespace verbena::tools
