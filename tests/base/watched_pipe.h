// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::test {

// A pipe that tells whether all copies of the descriptor `writing` have been closed.
struct WatchedPipe {
  WatchedPipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
  }
  bool is_closed() const {
    char byte;
    return ::read(reading.get(), &byte, sizeof byte) == 0;
  }
  UniqueFd reading;
  UniqueFd writing;
};

}  // namespace verbena::test
