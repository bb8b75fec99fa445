// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::memory {

// Code that may run inside a guarded call. This is the code of the object that contains these functions
// (libibverbs.so.1, or a program of ours), and of the libraries which that object names as needed. They
// include the C library with its memcpy. A fault in other code belongs to the application.

// Finds the ranges, which are constant afterwards. Idempotent; any thread may call it, but no signal handler.
void find_guarded_code();

// Whether `address` lies in these ranges. Async-signal-safe.
bool is_guarded_code(const void* address);

}  // namespace verbena::memory
