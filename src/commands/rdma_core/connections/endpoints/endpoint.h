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

// The common part of rdma_client, rdma_server, rdma_xclient and rdma_xserver. These programs use librdmacm's
// blocking calls, one endpoint and messages of 16 bytes.

using Message = std::array<uint8_t, 16>;

// Reports that the function named `call` failed, with errno and a remedy. Returns -1.
int call_failed(const char* call);

// Calls rdma_getaddrinfo() for `node` (none if empty) and `port`, and stores the result in `found`. Returns
// 0, or the exit status after reporting the error.
int find_addresses(const std::string& node, const std::string& port, const rdma_addrinfo& hints,
                   const Output& output, AddressInfo& found);

// Waits for a completion with `call`, which is rdma_get_send_comp() or rdma_get_recv_comp(). Returns 0 if the
// completion is successful, or -1 after reporting the error. `name` is the function's name in the message.
int await_completion(rdma_cm_id* id, int (*call)(rdma_cm_id*, ibv_wc*), const char* name);

// Decodes the number of the shared receive queue in a server's private data. Returns nullopt if too short.
std::optional<uint32_t> shared_queue_number(std::span<const uint8_t> private_data);

// Prints "NAME: start", calls `run`, and prints "NAME: end STATUS". Prints the JSON object if the status is
// 0. Returns the status.
int framed(const char* name, Output& output, const std::function<int()>& run);

// Adds the endpoint's device, addresses, queue pair number and message size to the JSON object.
void describe(rdma_cm_id* id, Output& output);

}  // namespace verbena::rdma_core
