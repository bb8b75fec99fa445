// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "control/model/link.h"

namespace verbena::umad {

// The port number of all our adapters: each has one port.
inline constexpr int kPortNumber = 1;

// Returns all adapters, except those whose names are too long for libibumad's structs. Thread-safe.
Result<std::vector<control::Link>> adapters();

// The result of choose(): an adapter and a port number. The port number is 0 if the program named an adapter
// but no port.
struct Choice {
  control::Link link;
  int port = 0;
};
// Selects an adapter and a port as libibumad does. Returns a named adapter as is, even if its port is down,
// unless `port` is 0. Otherwise selects an active adapter that matches, preferably one with an address that
// is not link-local. Errors: ENODEV if there is none.
Result<Choice> choose(const char* name, std::optional<int> port);

}  // namespace verbena::umad
