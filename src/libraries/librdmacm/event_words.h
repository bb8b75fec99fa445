// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "libraries/librdmacm/events.h"

namespace verbena::rdmacm {

// Writes the event to the log if the application takes it for an error.
void say_failure(const Event& event) noexcept;

// The event, the peer's address, the status and its likeliest cause, for the log. Empty without memory.
std::string failure_words(const Event& event) noexcept;

}  // namespace verbena::rdmacm
