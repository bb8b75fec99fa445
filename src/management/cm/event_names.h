// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace verbena::cm {

// Events of librdmacm in words. An event's type is an enum rdma_cm_event_type, also one that is newer than
// the headers that we build with. A status is that of struct rdma_cm_event: a negative one is an errno value,
// a positive one of REJECTED a reason of IBTA volume 1, 12.6.7.2, of UNREACHABLE a status of 12.11.2.

inline constexpr uint32_t kEventNames = 18;  // types below this one have names

// "RDMA_CM_EVENT_ESTABLISHED"; "UNKNOWN EVENT". The string ends with a zero.
const char* event_name(uint32_t type);
// Whether the application takes the event for an error.
bool is_failure(uint32_t type);
// "28 (consumer reject)", "-ETIMEDOUT", "0"
std::string status_text(uint32_t type, int status);
// The likeliest cause of a failure; empty: none is known.
std::string_view cause_of(uint32_t type, int status);

}  // namespace verbena::cm
