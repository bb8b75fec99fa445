// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::memory {

// The code that may run inside a guarded call: that of the object this is linked into (libibverbs.so.1, a
// program of ours) and of the libraries that object itself names as needed, among them the C library with its
// memcpy. A fault elsewhere is not ours.

// Looks the ranges up; they are constant afterwards. Idempotent; any thread may call it. Not for a signal
// handler.
void find_guarded_code();

// Async-signal-safe.
bool is_guarded_code(const void* address);

}  // namespace verbena::memory
