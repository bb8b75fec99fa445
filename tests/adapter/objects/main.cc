// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"

// Children of fork() start engines of their own here; by default ThreadSanitizer ends such a child. Its
// search for deadlocks knows 64 locks at a time, and fork() takes all of the library's. (It finds only what
// the program shows.)
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0:detect_deadlocks=0";
}

int main(int argc, char** argv) {
  using namespace verbena::adapter::testing;
  if (const auto status = run_helper(argc, argv)) return *status;
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new Environment);  // GoogleTest's to delete
  return RUN_ALL_TESTS();
}
