// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/failed_call.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// For the log, after `call` has failed with `code`: names the identifier with its addresses. Where the agent
// or wrong_state() says that the call does not fit its state, also names the state and what to call first.
// Costs nothing unless errors are logged.
void explain_failure(Identifier& identifier, const char* call, int code) noexcept;

// EINVAL: the identifier's state does not allow the call that is open.
inline int wrong_state() {
  return because(EINVAL, "{}", protocol::kCmWrongState);
}

}  // namespace verbena::rdmacm
