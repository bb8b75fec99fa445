// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena {

// Registers `function` with atexit(3). Safe in a child of fork(): fork() waits until no other thread is
// inside this function. The C library does not (glibc 2.36): a child may inherit its atexit() lock taken, and
// its next atexit() and its exit() then block without end. Any thread.
void call_at_exit(void (*function)());

}  // namespace verbena
