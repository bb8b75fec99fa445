// SPDX-License-Identifier: Apache-2.0
#include "base/processor_clock.h"

#include <charconv>
#include <string_view>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena {

// The line has three numbers: time on a processor and time that the thread waited for one, both in
// nanoseconds, and a count. Each thread waits at least once, for some microseconds.
std::optional<Duration> wait_for_processor() {
  const UniqueFd file(
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)));
  char line[96];
  const long bytes = file ? ::syscall(SYS_read, file.get(), line, sizeof line) : -1;
  const std::string_view text(line, bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  int64_t waited = 0;
  const auto number = text.substr(space + 1);
  std::from_chars(number.data(), number.data() + number.size(), waited);
  return waited > 0 ? std::optional(Duration(waited)) : std::nullopt;
}

}  // namespace verbena
