// SPDX-License-Identifier: Apache-2.0
// Executes itself again with the preload, as `verbena run --shared-memory` would.
#include <cstdlib>

#include <gtest/gtest.h>
#include <unistd.h>

int main(int argc, char** argv) {
  constexpr const char* kMark = "VERBENA_TEST_PRELOADED";
  if (std::getenv(kMark) == nullptr) {
    ::setenv("LD_PRELOAD", VERBENA_MEMORY, 1);
    ::setenv(kMark, "1", 1);
    ::execv("/proc/self/exe", argv);
    return 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
