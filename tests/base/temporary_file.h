// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace verbena::test {

// Returns an unlinked temporary file, open for reading and writing.
inline UniqueFd temporary_file() {
  char name[] = "/tmp/verbena-test-XXXXXX";
  UniqueFd fd(::mkstemp(name));
  EXPECT_TRUE(fd);
  ::unlink(name);
  return fd;
}

}  // namespace verbena::test
