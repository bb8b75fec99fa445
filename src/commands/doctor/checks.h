// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands/doctor/netdevs.h"
#include "control/model/agent_status.h"

namespace verbena::commands::doctor {

enum class Level {
  kFine,    // correct
  kUnseen,  // could not be checked
  kCost,    // works, but slower, less safely or less conveniently than it could
  kFault,   // something does not work
};

struct Finding {
  std::string subject;  // one word for the subject of the check, such as "links"
  Level level = Level::kFine;
  std::string what;  // the observation, in one sentence
  std::string todo;  // the remedy, in one sentence; empty if there is none
};

// The findings of one run of `verbena doctor`, in the order in which the checks added them.
class Findings {
 public:
  void fine(std::string subject, std::string what) { add(std::move(subject), Level::kFine, std::move(what)); }
  void unseen(std::string subject, std::string what, std::string todo = {}) {
    add(std::move(subject), Level::kUnseen, std::move(what), std::move(todo));
  }
  void cost(std::string subject, std::string what, std::string todo) {
    add(std::move(subject), Level::kCost, std::move(what), std::move(todo));
  }
  void fault(std::string subject, std::string what, std::string todo) {
    add(std::move(subject), Level::kFault, std::move(what), std::move(todo));
  }

  const std::vector<Finding>& all() const { return all_; }
  size_t count(Level level) const {
    return static_cast<size_t>(
        std::count_if(all_.begin(), all_.end(), [level](const Finding& one) { return one.level == level; }));
  }
  // Whether this subject has a finding of level kCost or kFault.
  bool amiss(const std::string& subject) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Finding& one) {
      return one.subject == subject && (one.level == Level::kCost || one.level == Level::kFault);
    });
  }

 private:
  void add(std::string subject, Level level, std::string what, std::string todo = {}) {
    all_.push_back({std::move(subject), level, std::move(what), std::move(todo)});
  }

  std::vector<Finding> all_;
};

// Formats findings for people: one line for each, followed by its remedy, and a conclusion at the end.
std::string as_text(const Findings& findings);

// Formats findings as JSON: {"version", "result", "findings": [{"subject", "level", "what", "to_do"}]}.
std::string as_json(const Findings& findings);

// Returns the exit status of `verbena doctor`: 1 if there is a finding of level kCost or kFault, else 0. The
// caller exits with 2 if the check was not possible.
int exit_status(const Findings& findings);

// The checks of `verbena doctor`, one function per subject. Each adds at least one finding about its subject.

// Checks the agent's directory, and connects to the agent. Starts an agent if none runs. Reports what
// prevents programs from using the agent. Returns the agent's status, or nullopt if the agent does not
// answer.
std::optional<control::AgentStatus> look_at_agent(Findings& findings);

// Checks which process has UDP port 4791. `agent` is the agent's status, or nullopt if none answers.
void look_at_port(const std::optional<control::AgentStatus>& agent, Findings& findings);

// Checks for rules of nftables and iptables that drop incoming or outgoing packets to UDP port 4791 on any of
// these network devices. Also checks for rules that give forwarded packets from that port an address of this
// host (SNAT): a container's packets would then look like the host's own. Only root may read the rules.
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
