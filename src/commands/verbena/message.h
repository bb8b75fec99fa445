// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>

#include "base/format.h"

namespace verbena::commands {

// One line on standard error, from the command: "verbena: ...".
template <class... Args>
void complain(fmt::format_string<Args...> format, Args&&... args) {
  verbena::print(stderr, "verbena: {}\n", verbena::format(format, std::forward<Args>(args)...));
}

}  // namespace verbena::commands
