// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/doctor/finding.h"
#include "commands/doctor/netdevs.h"
#include "control/model/agent_status.h"

// What a doctor looks at, a function for each subject. Each adds at least one finding of its subject.
namespace verbena::commands::doctor {

// The agent: whether one answers or can be started, and what keeps programs from it. Its status, if there is
// one.
std::optional<control::AgentStatus> look_at_agent(Findings& findings);

// Who has UDP port 4791. `agent`: what it says of itself, or nothing where there is none.
void look_at_port(const std::optional<control::AgentStatus>& agent, Findings& findings);

// Rules of nftables and iptables that drop what goes to UDP port 4791, by any of these netdevs.
void look_at_firewall(const std::vector<std::string>& netdevs, Findings& findings);

// Links, their addresses, and what of a packet fits on the way. Pure.
void look_at_links(const std::vector<control::LinkStatus>& links, const Netdevs& netdevs, Findings& findings);

// What this process, and so what it starts, may have at most.
void look_at_limits(Findings& findings);

// What a sandbox or a security module keeps from us.
void look_at_kernel(Findings& findings);

// Variables and files that put other libraries in front of ours.
void look_at_environment(Findings& findings);

}  // namespace verbena::commands::doctor
