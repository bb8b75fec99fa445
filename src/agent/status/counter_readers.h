// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/unique_fd.h"

namespace verbena::agent {

// Whether somebody has a counter's file open. Programs open them once and read them again and again, so as
// long as they are open they are to be kept current; when nobody looks that is not worth the time.
//
// watch() may be called on another thread than the rest.
class CounterReaders {
 public:
  CounterReaders();

  // Looks after the files of this folder, until it is gone.
  void watch(const std::string& folder);

  // Readable when take_news() has something; -1: the system does not tell such things.
  int fd() const { return fd_.get(); }
  void take_news();
  bool any() const;

 private:
  UniqueFd fd_;
  std::map<int, int64_t> open_;  // files held open, by watched folder
};

}  // namespace verbena::agent
