// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// What rdma_client, rdma_server, rdma_xclient and rdma_xserver share: librdmacm's calls that block, one
// endpoint, messages of 16 bytes.

using Message = std::array<uint8_t, 16>;

// A sentence about a call that failed, with errno's words; the answer is its -1.
int call_failed(const char* call);

// rdma_getaddrinfo(); an empty node is none. 0, or what the program ends with, after it has said so.
int find_addresses(const std::string& node, const std::string& port, const rdma_addrinfo& hints,
                   const Output& output, AddressInfo& found);

// What rdma_get_send_comp() and its like answered: 0 if a message is done, and was well. `call` is that
// function.
int await_completion(rdma_cm_id* id, int (*call)(rdma_cm_id*, ibv_wc*), const char* name);

// The number of a shared receive queue that a server sent along with its answer; nothing if it is none.
std::optional<uint32_t> shared_queue_number(std::span<const uint8_t> private_data);

// "NAME: start", the run, "NAME: end STATUS", and the object.
int framed(const char* name, Output& output, const std::function<int()>& run);

// What the object says of an endpoint.
void describe(rdma_cm_id* id, Output& output);

}  // namespace verbena::rdma_core
