// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::heap {

// A program may bring an allocator of its own (jemalloc linked in, a sanitizer): its functions stand before
// ours. If some of ours were reached all the same, a block would be given out by one and freed by the other.
// So each function that takes a block is called once, as the program would call it, with a null pointer,
// which harms nobody; and it is seen whether ours was reached.
enum class Arrival : unsigned { kFree = 1, kRealloc = 2, kReallocArray = 4, kUsableSize = 8 };

// Ours was called with a null pointer.
void note_arrival(Arrival arrival);

// Whether all of the program's calls come to us. Called once, before there is a second thread.
bool all_arrive_here();

}  // namespace verbena::heap
