// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/doctor/checks.h"
#include "tools/doctor/program.h"
#include "tools/doctor/report.h"
#include "tools/verbena/commands.h"
#include "tools/verbena/help.h"
#include "tools/verbena/installation.h"
#include "tools/verbena/message.h"

namespace verbena::tools {
namespace {

constexpr int kCouldNotLook = 2;

constexpr const char* kDoctorExamples =
    "Looks at the agent, UDP port 4791, links and MTUs, the firewall (as far as you may), limits, what the "
    "kernel\n"
    "allows, and libraries; of a program, at the libraries that it would load. It changes nothing; where no "
    "agent\n"
    "runs it starts one, which ends when it is idle.\n"
    "\n"
    "Examples:\n"
    "  verbena doctor                           what keeps programs from working here\n"
    "  sudo verbena doctor                      the firewall, too, and the names of all programs\n"
    "  verbena doctor ./my_program              what keeps this one from Verbena's libraries\n"
    "  verbena doctor --json                    for programs\n"
    "\n"
    "Exit status: 0 nothing is amiss, 1 something is, 2 it could not look, or wrong usage.\n";

// The netdevs that packets may come by, those to other hosts first.
std::vector<std::string> ways_in(const doctor::Netdevs& netdevs) {
  std::vector<std::string> names;
  for (const bool loopback : {false, true}) {
    for (const doctor::Netdev& one : netdevs.all) {
      if (one.up && one.loopback == loopback) names.push_back(one.name);
    }
  }
  return names;
}

void look_at_machine(doctor::Findings& findings) {
  const auto agent = doctor::look_at_agent(findings);
  doctor::look_at_port(agent, findings);
  const auto netdevs = doctor::read_netdevs();
  if (agent && netdevs) {
    doctor::look_at_links(agent->links, *netdevs, findings);
  } else {
    findings.unseen(
        "links", agent ? "the kernel does not tell of network devices" : "without an agent there are none");
  }
  std::vector<std::string> names;
  if (netdevs) names = ways_in(*netdevs);
  doctor::look_at_firewall(names, findings);
  doctor::look_at_limits(findings);
  doctor::look_at_kernel(findings);
  doctor::look_at_environment(findings);
}

int look(const std::string& program, bool json) {
  doctor::Findings findings;
  if (program.empty()) {
    look_at_machine(findings);
  } else {
    const auto installation = Installation::of_this_program();
    if (!installation) {
      complain_of_no_installation();
      return kCouldNotLook;
    }
    if (const auto looked = doctor::look_at_program(program, *installation, findings); !looked) {
      complain("cannot look at '{}': {}", program, std::strerror(looked.error().code));
      return kCouldNotLook;
    }
  }
  fmt::print("{}", json ? doctor::as_json(findings) : doctor::as_text(findings));
  return doctor::exit_status(findings);
}

}  // namespace

void add_doctor(CLI::App& verbena, int& status) {
  CLI::App* command =
      verbena.add_subcommand("doctor", "Say what keeps programs from working here, and what to do");
  explain(*command, "verbena doctor [--json] [PROGRAM]", kDoctorExamples);
  const auto program = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("PROGRAM", *program, "look at this program, without running it");
  command->add_flag("--json", *json, "one JSON object, for programs");
  command->callback([program, json, &status] { status = look(*program, *json); });
}

}  // namespace verbena::tools
