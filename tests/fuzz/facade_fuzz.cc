// SPDX-License-Identifier: Apache-2.0
// A program under `verbena run` that uses arbitrary paths, relative to any directory, while the file system
// changes. The preload is in every program, so it must do no harm. Promises: no path overruns a buffer or
// takes long, and errno is unchanged. Paths that are not redirected stay the same, and redirected ones lie in
// the agent's directory, below one of its roots.
//
// The file system is simulated: the input decides the result of each lookup.
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/map_line.h"
#include "base/paths/state_path.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "preload/sysfs/shown_path.h"

namespace {

using verbena::fuzz::Choices;

Choices* at_hand = nullptr;
uint32_t calls = 0;
std::string working_directory;

// Answers a lookup with a file of some kind, or with ENOENT.
int answer_status(struct stat& status) {
  ++calls;
  const uint8_t what = at_hand->byte();
  if ((what & 3) == 0 && !at_hand->empty()) {
    errno = ENOENT;
    return -1;
  }
  std::memset(&status, 0, sizeof status);
  status.st_mode = ((what & 4) != 0 ? S_IFLNK : (what & 8) != 0 ? S_IFREG : S_IFDIR) | 0755;
  if ((what & 16) != 0) status.st_mode |= S_IWOTH;
  status.st_uid = (what & 32) != 0 ? 1000 : 0;
  status.st_ino = what;
  return 0;
}

long answer_path(char* to, size_t room) {
  ++calls;
  const size_t size = std::min(working_directory.size(), room);
  if (size == 0) {
    errno = ENOENT;
    return -1;
  }
  std::memcpy(to, working_directory.data(), size);
  return static_cast<long>(size);
}

}  // namespace

extern "C" {
int __real_stat(const char* path, struct stat* status);
int __real_lstat(const char* path, struct stat* status);

// Before the first input, when the preload initializes, there are no files.
long __wrap_syscall(long number, ...) {
  if (at_hand == nullptr) {
    errno = ENOENT;
    return -1;
  }
  va_list arguments;
  va_start(arguments, number);
  long result = -1;
  if (number == SYS_newfstatat) {
    va_arg(arguments, int);
    const char* const path = va_arg(arguments, const char*);
    VERBENA_REQUIRE(std::strlen(path) < PATH_MAX);
    result = answer_status(*va_arg(arguments, struct stat*));
  } else if (number == SYS_getcwd) {
    char* const to = va_arg(arguments, char*);
    const size_t room = va_arg(arguments, size_t);
    result = answer_path(to, room - 1);
    if (result > 0) to[result++] = '\0';
  } else if (number == SYS_readlinkat) {
    va_arg(arguments, int);
    va_arg(arguments, const char*);
    char* const to = va_arg(arguments, char*);
    result = answer_path(to, va_arg(arguments, size_t));
  } else if (number == SYS_openat) {
    errno = ENOENT;  // no map of users (base/paths/users.cc)
  } else {
    VERBENA_REQUIRE(number == SYS_newfstatat);  // no other system call is expected
  }
  va_end(arguments);
  return result;
}
int __wrap_stat(const char* path, struct stat* status) {
  return at_hand != nullptr ? answer_status(*status) : __real_stat(path, status);
}
int __wrap_lstat(const char* path, struct stat* status) {
  return at_hand != nullptr ? answer_status(*status) : __real_lstat(path, status);
}
}

namespace verbena::sysfs {
namespace {

constexpr std::string_view kPieces[] = {"/",
                                        "//",
                                        ".",
                                        "..",
                                        "/../",
                                        "sys",
                                        "class",
                                        "a",
                                        "dev",
                                        "/sys/class/infiniband",
                                        "/sys/class/infiniband_verbs",
                                        "/dev/infiniband",
                                        "infiniband",
                                        "infiniband_mad",
                                        "/h",
                                        "/h/sys/class/infiniband",
                                        "rxe_a",
                                        "/./"};

std::string path_from(Choices& choices) {
  std::string path;
  for (uint32_t pieces = choices.below(16); pieces > 0; --pieces) {
    const uint32_t which = choices.below(std::size(kPieces) + 3);
    if (which < std::size(kPieces)) {
      path += kPieces[which];
    } else if (which == std::size(kPieces)) {  // long paths are shortened or refused
      path.append(choices.number<uint16_t>() % (PATH_MAX + 8), choices.yes() ? '/' : 'x');
    } else {
      for (const std::byte each : choices.bytes(choices.below(16))) {
        if (each != std::byte{}) path += static_cast<char>(each);
      }
    }
  }
  return path;
}

void check_path(Choices& choices) {
  static constexpr const char* kChosen[] = {"/h", "/h", "/h", nullptr, "", "h", "/"};
  const char* const chosen = kChosen[choices.below(std::size(kChosen))];
  const int directory = choices.yes() ? AT_FDCWD : static_cast<int>(choices.byte()) - 1;
  working_directory = path_from(choices);
  const std::string path = path_from(choices);
  // The path is exactly as long as its allocation, so that the sanitizer sees reads beyond it.
  const auto exact = std::make_unique<char[]>(path.size() + 1);
  std::memcpy(exact.get(), path.c_str(), path.size() + 1);
  calls = 0;
  errno = EXDEV;
  const ShownPath where(chosen, directory, exact.get());
  VERBENA_REQUIRE(errno == EXDEV);
  VERBENA_REQUIRE(calls <= 64 + 16 * path.size());
  if (where.replaced()) VERBENA_REQUIRE(std::strlen(where.target()) < PATH_MAX && where.target()[0] != '\0');
  VERBENA_REQUIRE(where.shown() || where.merged_root() == nullptr);
  if (!where.shown()) return;
  const std::string_view target(where.target());
  VERBENA_REQUIRE(where.home().size() <= target.size());
  if (chosen != nullptr) VERBENA_REQUIRE(where.home() == chosen);
  VERBENA_REQUIRE(root_of(target.substr(where.home().size())) != nullptr);
}

// Parses a line of /proc/PID/maps, whose file name may be arbitrary.
void check_map_line(Choices& choices) {
  const ConstBytes bytes = choices.rest();
  const auto exact = std::make_unique<char[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
  const std::string_view text(exact.get(), bytes.size());
  const auto line = parse_map_line(text);
  if (!line) return;
  VERBENA_REQUIRE(line->path.empty() || (line->path.data() >= text.data() &&
                                         line->path.data() + line->path.size() == text.data() + text.size()));
}

}  // namespace
}  // namespace verbena::sysfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::sysfs;
  Choices choices(data, size);
  at_hand = &choices;
  if (choices.below(8) == 0) {
    check_map_line(choices);
  } else {
    check_path(choices);
  }
  at_hand = nullptr;
  return 0;
}
