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

// Checks the agent's directory, and connects to the agent, starting one if none runs. Reports what keeps
// programs from it. Returns the agent's status, or nullopt if the agent does not answer.
std::optional<control::AgentStatus> look_at_agent(Findings& findings);

// Checks which process has UDP port 4791. `agent` is the agent's status, or nullopt if none answers.
void look_at_port(const std::optional<control::AgentStatus>& agent, Findings& findings);

// Checks for rules of nftables and iptables that drop packets to UDP port 4791, incoming or outgoing, on any
// of these network devices, or give forwarded ones an address of this host. Only root may read the rules.
void look_at_firewall(const std::vector<std::string>& netdevs, Findings& findings);

// Checks link states and addresses, and that devices, ports and routes fit each link's path MTU. Pure.
void look_at_links(const std::vector<control::LinkStatus>& links, const Netdevs& netdevs, Findings& findings);

// Checks resource limits of this process, which its children inherit, the limits of socket buffers, and free
// space in /dev/shm and in the agent's directory.
void look_at_limits(Findings& findings);

// Checks whether a sandbox, a security module or an old kernel denies system calls that Verbena needs, or
// access to other processes' memory. Also checks for files of /proc that Verbena reads.
void look_at_kernel(Findings& findings);

// Checks for environment variables and files that make the loader prefer other libraries to Verbena's. Also
// checks for missing files of the installation, and for wrong values of Verbena's own variables.
void look_at_environment(Findings& findings);

}  // namespace verbena::commands::doctor
