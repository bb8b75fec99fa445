// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace verbena::rdma_core {

// Decodes the number of the shared receive queue in a server's private data. Returns nullopt if the data is
// too short.
std::optional<uint32_t> shared_queue_number(std::span<const uint8_t> private_data);

}  // namespace verbena::rdma_core
