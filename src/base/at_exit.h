// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena {

// atexit(3), which a child of fork() may call, too: the C library's own lock for it (glibc 2.36) stays taken
// there, if another thread of the parent had it at that moment. Then the child's next atexit() waits without
// end, and so does its exit(). Any thread.
void call_at_exit(void (*function)());

}  // namespace verbena
