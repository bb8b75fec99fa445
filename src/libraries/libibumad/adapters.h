// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "control/model/link.h"

namespace verbena::umad {

// The port number of all our adapters: each has one port.
inline constexpr int kPortNumber = 1;

// Returns the adapters whose names fit libibumad's structs. Thread-safe.
Result<std::vector<control::Link>> adapters();

// Selects the adapter and port that a program means: a name and number, or a null name and port 0 for the
// first adapter that is up. ENODEV if there is none.
struct Choice {
  control::Link link;
  int port = 0;
};
Result<Choice> choose(const char* name, std::optional<int> port);

}  // namespace verbena::umad
