// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace verbena::memory {

// The two RDMA atomics on user memory, under guard. They are the processor's own: atomic for the
// application's threads and every other process that maps the memory (IBV_ATOMIC_GLOB of ibv_query_device).
// Values are in host order. Both return the previous value, or nullopt if the access faulted and nothing was
// changed.
//
// REQUIRES: address is a multiple of 8; install_fault_guard() was called
std::optional<uint64_t> fetch_add_guarded(std::byte* address, uint64_t addend);
std::optional<uint64_t> compare_swap_guarded(std::byte* address, uint64_t expected, uint64_t desired);

}  // namespace verbena::memory
