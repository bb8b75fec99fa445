// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "agent/slots/process.h"
#include "base/format.h"
#include "commands/doctor/checks.h"
#include "commands/verbena/names.h"
#include "wire/roce/packet.h"

namespace verbena::commands::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPort = "port";
using roce::kUdpPort;

bool is_rxe_loaded() {
  std::error_code ignored;
  return fs::exists("/sys/module/rdma_rxe", ignored);
}

std::string name_of(const std::string& pid) {
  std::string name;
  std::ifstream stream("/proc/" + pid + "/comm");
  std::getline(stream, name);
  return printable(name);
}

bool is_agent(const std::string& pid) {
  return name_of(pid).starts_with("verbena-agent");
}

constexpr const char* kConsequence =
    "the ports of all links are DOWN, and programs reach those of this host only";

// Names the holder of UDP port 4791. A socket of the kernel belongs to root and to no process.
void say_who_has_it(const agent::PortHolder& holder, Findings& findings) {
  const std::string pid = agent::process_with_socket(holder.inode);
  const bool sees_all = ::geteuid() == 0;
  if (pid.empty() && holder.uid == 0 && is_rxe_loaded()) {
    findings.fault(
        kPort,
        verbena::format("UDP port {} is held by the kernel's rdma_rxe{}: {}", kUdpPort,
                        sees_all ? "" : ", or by a program of root's", kConsequence),
        "unload it, as root: modprobe -r rdma_rxe; or run Verbena in a network namespace of its own");
  } else if (!pid.empty() && is_agent(pid)) {
    findings.fault(
        kPort,
        verbena::format("UDP port {} is held by the agent of user {} (pid {}), which serves that user only: "
                        "your programs reach this host alone",
                        kUdpPort, holder.uid, pid),
        verbena::format("end it (kill {}) and have root's serve all users: sudo verbena agent", pid));
  } else if (!pid.empty()) {
    findings.fault(
        kPort,
        verbena::format("UDP port {} is held by {} (pid {}) of user {}: {}", kUdpPort, name_of(pid), pid,
                        holder.uid, kConsequence),
        verbena::format("end it (kill {}), or run Verbena in a network namespace of its own", pid));
  } else {
    findings.fault(kPort,
                   verbena::format("UDP port {} is held by user {}: {}", kUdpPort, holder.uid, kConsequence),
                   "as root, 'verbena doctor' names the program; where users share a host, root's agent "
                   "serves them all: sudo verbena agent");
  }
}

unsigned first_unprivileged_port() {
  unsigned port = 1024;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> port;
  return port;
}

}  // namespace

void look_at_port(const std::optional<control::AgentStatus>& agent, Findings& findings) {
  if (agent && agent->no_wire_reason.empty()) {
    return findings.fine(kPort, verbena::format("UDP port {} is the agent's", kUdpPort));
  }
  const std::vector<agent::PortHolder> holders = agent::holders_of_port(kUdpPort);
  const bool privileged = agent ? agent->uid == 0 : ::geteuid() == 0;
  if (!holders.empty()) {
    say_who_has_it(holders.front(), findings);
  } else if (!privileged && first_unprivileged_port() > kUdpPort) {
    findings.fault(
        kPort,
        verbena::format(
            "net.ipv4.ip_unprivileged_port_start is {}: an ordinary user's agent may not have UDP port {}",
            first_unprivileged_port(), kUdpPort),
        "have root's agent serve all users, sudo verbena agent, or as root: sysctl -w "
        "net.ipv4.ip_unprivileged_port_start=1024");
  } else if (agent) {
    findings.fault(kPort, verbena::format("the agent has no wire: {}", agent->no_wire_reason),
                   "nobody has the port now: the agent takes it within a second");
  } else {
    findings.fine(kPort, verbena::format("UDP port {} is free", kUdpPort));
  }
}

}  // namespace verbena::commands::doctor
