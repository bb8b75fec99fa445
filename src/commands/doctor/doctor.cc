// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>

#include "base/format.h"
#include "commands/doctor/checks.h"
#include "commands/doctor/peer.h"
#include "commands/doctor/program.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/help.h"
#include "commands/verbena/installation.h"
#include "commands/verbena/names.h"
#include "commands/verbena/report.h"

namespace verbena::commands {
namespace {

constexpr int kCouldNotLook = 2;

constexpr const char* kDoctorExamples =
    "Looks at the agent, UDP port 4791, links and MTUs, the firewall (as far as you may), limits, what the "
    "kernel\n"
    "allows, and libraries; of a program, at the libraries that it would load; of another host, at whether "
    "its UDP\n"
    "port 4791 answers, at what answers there, and at the path MTU that fits on the way. It changes nothing; "
    "where\n"
    "no agent runs it starts one, which ends when it is idle.\n"
    "\n"
    "Examples:\n"
    "  verbena doctor                           what keeps programs from working here\n"
    "  sudo verbena doctor                      the firewall, too, and the names of all programs\n"
    "  verbena doctor ./my_program              what keeps this one from Verbena's libraries\n"
    "  verbena doctor ./libmy_library.so        the same of a shared library\n"
    "  verbena doctor 192.0.2.2                 whether that host can be reached, and what it runs\n"
    "  verbena doctor --json                    for programs\n"
    "\n"
    "Exit status: 0 nothing is amiss, 1 something is, 2 it could not look, or wrong usage.\n";

// The network devices that packets may use; loopback is last.
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
    findings.unseen("links",
                    agent ? "the kernel does not report network devices" : "without an agent there are none");
  }
  std::vector<std::string> names;
  if (netdevs) names = ways_in(*netdevs);
  doctor::look_at_firewall(names, findings);
  doctor::look_at_limits(findings);
  doctor::look_at_kernel(findings);
  doctor::look_at_environment(findings);
}

// Returns false, after a message, if there is no such program.
bool look_at_program(const std::string& program, doctor::Findings& findings) {
  const auto installation = Installation::of_this_program();
  if (!installation) {
    complain_of_no_installation();
    return false;
  }
  const auto looked = doctor::look_at_program(program, *installation, findings);
  if (looked) return true;
  const int error = looked.error().code;
  std::error_code ignored;
  if (std::filesystem::is_directory(program, ignored)) {
    complain("'{}' is a directory: name a program or a library in it", printable(program));
  } else if (error == ENOENT) {
    complain(
        "'{}' is neither a program in PATH, nor a file, nor a host whose name or address is known; give a "
        "path such as ./program, or an IP address",
        printable(program));
  } else if (error == ENOEXEC) {
    complain("'{}' is neither a program, nor a script, nor a shared library", printable(program));
  } else {
    complain("cannot look at '{}': {}", printable(program), std::strerror(error));
  }
  return false;
}

void look_at_peer(const sockaddr_storage& peer, doctor::Findings& findings) {
  const auto agent = doctor::look_at_agent(findings);
  if (!agent) return findings.unseen("peer", "without an agent nothing can be asked");
  doctor::report_peer(doctor::look_at(peer, *agent), findings);
}

bool is_address(const std::string& text) {
  in6_addr unused{};
  return ::inet_pton(AF_INET, text.c_str(), &unused) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &unused) == 1;
}

// Examines `what`: the machine if empty, else a program, a library or a host. A program takes precedence over
// a host of the same name; the host then has to be given by its address.
int look(const std::string& what, bool json) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit (ulimit -f) is reported instead
  doctor::Findings findings;
  const bool is_path = what.find('/') != std::string::npos;
  const bool is_program = is_path || (!what.empty() && !is_address(what) && doctor::is_program(what));
  const auto peer = what.empty() || is_program ? std::nullopt : doctor::find_peer(what);
  if (what.empty()) {
    look_at_machine(findings);
  } else if (peer) {
    look_at_peer(*peer, findings);
  } else if (!look_at_program(what, findings)) {
    return kCouldNotLook;
  }
  verbena::print("{}", json ? doctor::as_json(findings) : doctor::as_text(findings));
  return doctor::exit_status(findings);
}

}  // namespace

void add_doctor(CLI::App& verbena, int& status) {
  CLI::App* command =
      verbena.add_subcommand("doctor", "Say what keeps programs from working here, and what to do");
  explain(*command, "verbena doctor [--json] [PROGRAM|LIBRARY|PEER]", kDoctorExamples);
  const auto what = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("WHAT", *what, "look at this program or library, without running it; or ask this host");
  command->add_flag("--json", *json, "one JSON object, for programs");
  command->callback([what, json, &status] { status = look(*what, *json); });
}

}  // namespace verbena::commands
