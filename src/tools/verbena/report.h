// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent_client/admin_error.h"
#include "tools/verbena/commands.h"
#include "tools/verbena/message.h"

namespace verbena::tools {

// Of a request that the agent has refused. What the command exits with.
inline int report(const agent_client::AdminError& error) {
  complain("{}", error.text);
  return kFailed;
}

}  // namespace verbena::tools
