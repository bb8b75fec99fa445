// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <fmt/format.h>

#include "base/log.h"

namespace verbena {

// What VERBENA_LOG=error says of a call of a C ABI that failed: one sentence with its name, the errno and
// why. Who finds the reason tells it with because(), wherever that is; the frame of the call (c_abi.h) says
// the sentence. Of the last reason, that of the same thread. Costs nothing where nobody listens.

// For because(): the reason of this thread's call. Longer ones are cut.
void keep_reason(fmt::string_view words, fmt::format_args arguments) noexcept;

// Answers `code`, so that it stands where an errno value would: `return because(EINVAL, "...", ...)`.
template <class... Args>
[[gnu::cold]] int because(int code, fmt::format_string<Args...> words, const Args&... arguments) noexcept {
  if (log_level() >= LogLevel::kError) keep_reason(words, fmt::make_format_args(arguments...));
  return code;
}

// For concerning(): the object that this thread's call is about. Longer ones are cut.
void keep_subject(fmt::string_view words, fmt::format_args arguments) noexcept;

// Says which object the call is about, in front of the reason: a queue pair, its device and port. Answers
// `code`.
template <class... Args>
[[gnu::cold]] int concerning(int code, fmt::format_string<Args...> words, const Args&... arguments) noexcept {
  if (log_level() >= LogLevel::kError) keep_subject(words, fmt::make_format_args(arguments...));
  return code;
}

// A call begins: what was kept is not its reason.
void forget_reason() noexcept;

// A call has failed. `call`: its function, by the name that programs know, or by that of the function behind
// a pointer of ibv_context, without "ibv_". Nothing is said of what is no failure, such as EAGAIN.
void say_call_failed(const char* call, int code) noexcept;

}  // namespace verbena
