// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace verbena::cm {

// Texts for librdmacm's events, for logs and tools. `type` is an enum rdma_cm_event_type, and may be newer
// than the values in our headers. `status` is that of struct rdma_cm_event: a negative value is an errno. A
// positive value is a reason of IBTA volume 1, 12.6.7.2 for REJECTED, and a status of 12.11.2 for
// UNREACHABLE.

inline constexpr uint32_t kEventNames = 18;  // event types below this have names

// Returns the name, such as "RDMA_CM_EVENT_ESTABLISHED", or "UNKNOWN EVENT". Zero-terminated.
const char* event_name(uint32_t type);
// Returns whether the event reports a failure to the application.
bool is_failure(uint32_t type);
// Returns the status as text: "28 (consumer reject)", "-ETIMEDOUT", "0".
std::string status_text(uint32_t type, int status);
// Returns the most likely cause of a failure, as words for the user; empty if unknown.
std::string_view cause_of(uint32_t type, int status);

}  // namespace verbena::cm
