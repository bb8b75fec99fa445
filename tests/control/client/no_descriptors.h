// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::control::test {

// While it exists, this process can open no descriptors: it has as many as RLIMIT_NOFILE allows.
class NoDescriptors {
 public:
  static constexpr int kFew = 256;

  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit_), 0);
    const rlimit few{kFew, limit_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int fd = ::dup(STDIN_FILENO); fd >= 0; fd = ::dup(STDIN_FILENO)) used_.emplace_back(fd);
  }
  ~NoDescriptors() {
    used_.clear();
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit_), 0);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit limit_{};
  std::vector<UniqueFd> used_;
};

}  // namespace verbena::control::test
