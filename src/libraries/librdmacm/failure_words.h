// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/failed_call.h"
#include "libraries/librdmacm/events.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// Explains a failed call in the log: names the identifier and its addresses. `code` is the errno value of the
// function `call`; if it is 0, does nothing. If the call does not fit the identifier's state (kCmWrongState),
// also names the state and the call that must come first. Does nothing unless errors are logged.
void explain_failure(Identifier& identifier, const char* call, int code) noexcept;

// Returns EINVAL and records that the identifier's state does not allow the current call.
inline int wrong_state() {
  return because(EINVAL, "{}", protocol::kCmWrongState);
}

// Logs the event as an error if its type reports a failure, such as RDMA_CM_EVENT_REJECTED.
void say_failure(const Event& event) noexcept;

// Describes a failure event for the log: the event, the peer's address, the status and its most probable
// cause. Returns an empty string if there is no memory.
std::string failure_words(const Event& event) noexcept;

}  // namespace verbena::rdmacm
