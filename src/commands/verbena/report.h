// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/format.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/names.h"
#include "control/model/admin_error.h"
#include "control/model/agent_status.h"

namespace verbena::commands {

// Whether an error of Admin::connect() means that no agent runs (ECONNREFUSED or ENOENT).
bool is_absence(const control::AdminError& error);

// Returns the text that commands print if no agent runs. It is "No agent is running: nothing uses Verbena.",
// or names up to 5 programs in this network namespace that still use Verbena. Finds them in /proc, as far as
// this user may read there. These programs keep running without an agent.
std::string describe_absence();

// Prints one line to standard error, prefixed with the program's name: "verbena: ...". Returns kFailed, the
// exit status.
template <class... Args>
int complain(fmt::format_string<Args...> format, Args&&... args) {
  verbena::print(stderr, "verbena: {}\n", verbena::format(format, std::forward<Args>(args)...));
  return kFailed;
}

// Prints the error of a failed request to the agent. Returns kFailed, the exit status.
inline int report(const control::AdminError& error) {
  return complain("{}", error.text);
}

// Whether a link of this name exists. If not, prints an error with the names of the existing links.
inline bool find_link(const control::AgentStatus& status, const std::string& name) {
  std::vector<std::string> names;
  for (const control::LinkStatus& one : status.links) names.push_back(one.link.name);
  if (std::ranges::find(names, name) != names.end()) return true;
  const std::string list = names.empty() ? "there are none" : verbena::join(names, ", ");
  complain("no link '{}'; links: {}", printable(name), printable(list));
  return false;
}

}  // namespace verbena::commands
