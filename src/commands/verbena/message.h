// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>

#include "base/format.h"

namespace verbena::commands {

// Prints one line to standard error, prefixed with the program's name: "verbena: ...".
template <class... Args>
void complain(fmt::format_string<Args...> format, Args&&... args) {
  verbena::print(stderr, "verbena: {}\n", verbena::format(format, std::forward<Args>(args)...));
}

}  // namespace verbena::commands
