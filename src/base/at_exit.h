// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena {

// Registers `function` with atexit(3), for library code in programs that may fork. fork() waits until no
// other thread is inside call_at_exit(). A plain atexit() lacks this protection (glibc 2.36): a child may
// inherit the C library's lock held by another thread. The child's next atexit() and exit() then block
// forever. Any thread.
void call_at_exit(void (*function)());

}  // namespace verbena
