// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::heap {

// Detects whether the program's allocation calls reach this library. A program may bring its own allocator
// (jemalloc linked in, a sanitizer), whose functions precede ours. If only some of our functions were
// reached, one allocator would free the other's blocks. So each function that takes a block is called once,
// through the program's binding, with a null pointer, which has no effect. The functions of this library
// record such calls.
enum class Arrival : unsigned { kFree = 1, kRealloc = 2, kReallocArray = 4, kUsableSize = 8 };

// Records that this function of ours was called with a null pointer.
void note_arrival(Arrival arrival);

// Returns whether the program's free(), realloc(), reallocarray() and malloc_usable_size() are this
// library's; if not, leaks two small blocks. Called once, before a second thread exists.
bool all_arrive_here();

}  // namespace verbena::heap
