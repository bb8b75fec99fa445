// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

namespace verbena::sysfs {

// Restores errno at the end of its scope to its value at the beginning.
class ErrnoKeeper {
 public:
  ErrnoKeeper() : saved_(errno) {}
  ~ErrnoKeeper() { errno = saved_; }
  ErrnoKeeper(const ErrnoKeeper&) = delete;
  ErrnoKeeper& operator=(const ErrnoKeeper&) = delete;

 private:
  const int saved_;
};

}  // namespace verbena::sysfs
