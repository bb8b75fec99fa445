// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/unique_fd.h"

namespace verbena::agent {

// Tells whether a program has a counter file open. Programs open these files once and read them many times,
// so the files must be current while open. Without readers, updating them often would waste time.
//
// watch() may be called on another thread than the other methods.
class CounterReaders {
 public:
  CounterReaders();

  // Watches the files of this folder until it is removed.
  void watch(const std::string& folder);

  // A descriptor that is readable when take_news() has events; -1: no inotify.
  int fd() const { return fd_.get(); }
  void take_news();
  bool any() const;

 private:
  UniqueFd fd_;
  std::map<int, int64_t> open_;  // number of open files, by watched folder
};

}  // namespace verbena::agent
