// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace verbena::perf {

// Throws std::system_error for the errno `reason`. Its text is `what` and the reason, such as "cannot accept
// a client: Too many open files".
[[noreturn]] inline void fail(const std::string& what, int reason = errno) {
  throw std::system_error(reason, std::generic_category(), what);
}

}  // namespace verbena::perf
