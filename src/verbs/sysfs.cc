// SPDX-License-Identifier: Apache-2.0
// Where programs look for /sys, and how they read its files.
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "verbs/abi.h"

namespace {

std::string sysfs_path() {
  // A program run with another's rights does not let its caller say where to look.
  const char* wanted = ::secure_getenv("SYSFS_PATH");
  std::string path = wanted != nullptr ? wanted : "/sys";
  if (path.size() > IBV_SYSFS_PATH_MAX) path.resize(IBV_SYSFS_PATH_MAX);
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

const char* read_sysfs_path() {
  const char* path = "/sys";
  verbena::verbs::without_exceptions([&] {
    path = (new std::string(sysfs_path()))->c_str();  // the caller keeps it for good
    return 0;
  });
  return path;
}

}  // namespace

VERBENA_ABI const char* ibv_get_sysfs_path() {
  static const char* const path = read_sysfs_path();
  return path;
}

// The file's length without its last newline, and a terminating zero; -1 when it cannot be read or has no
// room for the zero.
VERBENA_ABI int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, size_t size) {
  int length = -1;
  verbena::verbs::answer_code([&] {
    const std::string path = std::string(dir) + '/' + file;
    const verbena::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return errno;
    const ssize_t got = ::read(fd.get(), buf, size);
    if (got < 0) return errno;
    auto used = static_cast<size_t>(got);
    if (used > 0) {
      if (buf[used - 1] == '\n') {
        buf[--used] = '\0';
      } else if (used < size) {
        buf[used] = '\0';
      } else {
        return EOVERFLOW;
      }
    }
    length = static_cast<int>(used);
    return 0;
  });
  return length;
}
