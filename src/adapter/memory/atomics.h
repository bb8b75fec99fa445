// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace verbena::memory {

// The two RDMA atomics on user memory, under guard. They are the processor's own atomics: atomic towards the
// application's threads and every other process that maps the memory (what ibv_query_device calls
// IBV_ATOMIC_GLOB). Values are in host order. The answer is the value before; nullopt when the access
// faulted, and then nothing was changed.
//
// REQUIRES: address is a multiple of 8; install_fault_guard() was called
std::optional<uint64_t> fetch_add_guarded(std::byte* address, uint64_t addend);
std::optional<uint64_t> compare_swap_guarded(std::byte* address, uint64_t expected, uint64_t desired);

}  // namespace verbena::memory
