// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

namespace verbena {

inline bool is_same_file(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// Whether `path` still leads to the open file `fd`. Returns false if either cannot be examined. Does not
// follow a symbolic link at the end of the path.
inline bool is_same_file(int fd, const char* path) {
  struct stat opened {};
  struct stat there {};
  return ::fstat(fd, &opened) == 0 && ::lstat(path, &there) == 0 && is_same_file(opened, there);
}

}  // namespace verbena
