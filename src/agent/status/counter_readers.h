// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Tells by inotify whether a program has a counter file open. Programs open these files once and read them
// many times, so the files must be current while open. While no program has one open, frequent updates would
// waste time.
//
// watch() may be called on a different thread than the other methods.
class CounterReaders {
 public:
  static constexpr Duration kPause = std::chrono::milliseconds(10);

  CounterReaders();

  // Watches the files of this folder until the folder is removed.
  void watch(const std::string& folder);

  // Returns a descriptor that is readable when take_news() has events, or -1 without inotify.
  int fd() const { return fd_.get(); }
  // Takes some events, a bounded number. Anybody may open the files, and make events faster than they are
  // read: wait for kPause between two calls.
  void take_news();
  // Returns whether a program has a counter file open, as of the last take_news().
  bool any() const;

 private:
  UniqueFd fd_;
  std::map<int, int64_t> open_;  // number of open files, by watched folder
};

}  // namespace verbena::agent
