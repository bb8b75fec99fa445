// SPDX-License-Identifier: Apache-2.0
// The only file that compiles fmt's implementation; our libraries do not export it.
#define FMT_HEADER_ONLY
#include "base/format.h"

#include <fmt/format.h>

namespace verbena {

std::string vformat(fmt::string_view format, fmt::format_args arguments) {
  return fmt::vformat(format, arguments);
}

void vprint(std::FILE* file, fmt::string_view format, fmt::format_args arguments) {
  fmt::vprint(file, format, arguments);
}

}  // namespace verbena
