// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::umad {

// Returns the level set by umad_debug(3); 0 is silent.
int debug_level();

// Writes a line to standard error, in libibumad's format.
[[gnu::format(printf, 2, 3)]] void say(const char* function, const char* format, ...);

}  // namespace verbena::umad
