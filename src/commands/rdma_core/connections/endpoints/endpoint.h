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

// The common part of rdma_client, rdma_server, rdma_xclient and rdma_xserver, which use librdmacm's blocking
// calls, one endpoint and messages of 16 bytes.

using Message = std::array<uint8_t, 16>;

// Reports a failed call by errno. Returns -1.
int call_failed(const char* call);

// Calls rdma_getaddrinfo(); an empty `node` means none. Returns 0, or the exit status after reporting the
// error.
int find_addresses(const std::string& node, const std::string& port, const rdma_addrinfo& hints,
                   const Output& output, AddressInfo& found);

// Waits for a completion with `call`, which is rdma_get_send_comp() or rdma_get_recv_comp(). Returns 0 if it
// was successful. `name` is the function's name for messages.
int await_completion(rdma_cm_id* id, int (*call)(rdma_cm_id*, ibv_wc*), const char* name);

// Decodes the number of the shared receive queue in the private data of a server's reply; nullopt if too
// short.
std::optional<uint32_t> shared_queue_number(std::span<const uint8_t> private_data);

// Prints "NAME: start", runs `run`, prints "NAME: end STATUS" and the object.
int framed(const char* name, Output& output, const std::function<int()>& run);

// Adds the endpoint's properties to the object.
void describe(rdma_cm_id* id, Output& output);

}  // namespace verbena::rdma_core
