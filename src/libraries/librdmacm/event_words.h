// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "libraries/librdmacm/events.h"

namespace verbena::rdmacm {

// Logs the event as an error if its type reports a failure, such as RDMA_CM_EVENT_REJECTED.
void say_failure(const Event& event) noexcept;

// Describes a failure event for the log: the event, the peer's address, the status and its most probable
// cause. Returns an empty string if there is no memory.
std::string failure_words(const Event& event) noexcept;

}  // namespace verbena::rdmacm
