// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace verbena::commands::doctor {

// Returns the value of an environment variable, or an empty string if the variable is not set.
inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace verbena::commands::doctor
