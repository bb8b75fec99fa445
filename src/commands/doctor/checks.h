// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/doctor/finding.h"
#include "commands/doctor/netdevs.h"
#include "control/model/agent_status.h"

// The checks of `verbena doctor`, one function per subject. Each adds at least one finding about its subject.
namespace verbena::commands::doctor {

// Checks whether an agent answers or can be started, and what keeps programs from it. Returns its status, if
// it answers.
std::optional<control::AgentStatus> look_at_agent(Findings& findings);

// Checks which process has UDP port 4791. `agent` is the agent's status; nullopt if none runs.
void look_at_port(const std::optional<control::AgentStatus>& agent, Findings& findings);

// Checks for rules of nftables and iptables that drop packets to UDP port 4791 on any of these network
// devices.
void look_at_firewall(const std::vector<std::string>& netdevs, Findings& findings);

// Checks link states, addresses, and whether MTUs of devices and routes fit the path MTU. Pure.
void look_at_links(const std::vector<control::LinkStatus>& links, const Netdevs& netdevs, Findings& findings);

// Checks resource limits of this process, which its children inherit, and free space in file systems.
void look_at_limits(Findings& findings);

// Checks for system calls, and access to other processes' memory, that a sandbox, a security module or an old
// kernel denies.
void look_at_kernel(Findings& findings);

// Checks for variables and files that make the loader prefer other libraries, and for wrong settings.
void look_at_environment(Findings& findings);

}  // namespace verbena::commands::doctor
