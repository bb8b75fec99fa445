// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "agent_client/admin_error.h"
#include "agent_client/agent_status.h"
#include "base/format.h"
#include "tools/verbena/commands.h"
#include "tools/verbena/message.h"
#include "tools/verbena/names.h"

namespace verbena::tools {

// Of a request that the agent has refused. What the command exits with.
inline int report(const agent_client::AdminError& error) {
  complain("{}", error.text);
  return kFailed;
}

// Whether there is such a link; complains where there is none.
inline bool find_link(const agent_client::AgentStatus& status, const std::string& name) {
  std::vector<std::string> names;
  for (const agent_client::LinkStatus& one : status.links) names.push_back(one.link.name);
  if (std::ranges::find(names, name) != names.end()) return true;
  const std::string list = names.empty() ? "there are none" : verbena::join(names, ", ");
  complain("no link '{}'; links: {}", printable(name), printable(list));
  return false;
}

}  // namespace verbena::tools
