// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::umad {

// What umad_debug(3) has set: 0 is silence.
int debug_level();

// A line on standard error in the form that libibumad's users know.
[[gnu::format(printf, 2, 3)]] void say(const char* function, const char* format, ...);

}  // namespace verbena::umad
