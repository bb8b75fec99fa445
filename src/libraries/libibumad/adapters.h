// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "control/model/link.h"

namespace verbena::umad {

// The port of an adapter of ours.
inline constexpr int kPortNumber = 1;

// Those whose names libibumad has room for. Any thread.
Result<std::vector<control::Link>> adapters();

// Which adapter and port a program means: by name and number, or by a null pointer and 0 the first that is
// up. ENODEV: there is none.
struct Choice {
  control::Link link;
  int port = 0;
};
Result<Choice> choose(const char* name, std::optional<int> port);

}  // namespace verbena::umad
