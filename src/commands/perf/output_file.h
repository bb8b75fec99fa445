// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/command_line/output_file.h"
#include "base/format.h"
#include "base/text.h"

namespace verbena::perf {

// Writes a text to a file. Throws std::runtime_error with the reason if that fails. `option` names the option
// that asks for the file.
inline void write_file(const char* option, const std::string& file, std::string_view text) {
  const auto written = command_line::write_output(file, text);
  if (written) return;
  const int code = written.error().code;
  throw std::runtime_error(
      verbena::format("{}: cannot write '{}': {}", option, printable(file),
                      code == EPERM ? "another user's file or link is there" : std::strerror(code)));
}

}  // namespace verbena::perf
