// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"

// Options of ThreadSanitizer. Children of fork() start engines of their own here; by default the sanitizer
// ends such a child. Its deadlock detector is limited to 64 locks, and fork() takes all of the library's.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0:detect_deadlocks=0";
}

int main(int argc, char** argv) {
  using namespace verbena::adapter::testing;
  if (const auto status = run_helper(argc, argv)) return *status;
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new Environment);  // GoogleTest deletes it
  return RUN_ALL_TESTS();
}
