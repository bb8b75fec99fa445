// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::umad {

// Returns the level that the program set with umad_debug(3); at level 0, nothing is written.
int debug_level();

// Writes a line to standard error, in libibumad's format.
[[gnu::format(printf, 2, 3)]] void say(const char* function, const char* format, ...);

}  // namespace verbena::umad
