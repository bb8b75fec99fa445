// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/cm.h"

namespace verbena::rdma_core {

// The common part of rdma_client, rdma_server, rdma_xclient and rdma_xserver. These programs use librdmacm's
// blocking calls, one endpoint and messages of 16 bytes.

using Message = std::array<uint8_t, 16>;

// The options of the four programs.
struct EndpointLine {
  std::string server;
  std::string port = "7471";
  bool shared = false;  // XRC
};

struct EndpointProgram {
  const char* name;
  const char* server;  // default of -s; null if the program has no such option
  bool extended;       // has -c, the communication type, and names itself as it was called
  int (*perform)(const EndpointLine& line, Output& output);
};

// Parses the command line, and calls perform() between "NAME: start" and "NAME: end STATUS". Prints the JSON
// object if the status is 0. Returns the status.
int run(const EndpointProgram& program, int argc, char** argv);

// The functions below return 0, or the exit status after reporting the error.

// Creates an endpoint for the server's address. With RAI_PASSIVE in `hints`, the endpoint is a listener.
// Otherwise it has a queue pair, and `wanted` has the queue pair's attributes afterwards.
int make_endpoint(const EndpointLine& line, const rdma_addrinfo& hints, ibv_qp_init_attr& wanted,
                  const Output& output, Endpoint& made);

// Listens with an endpoint of make_endpoint(), and waits for a client.
int await_client(rdma_cm_id* listener, Endpoint& client);

// Waits for a completion with `call`, which is rdma_get_send_comp() or rdma_get_recv_comp(). `name` is the
// function's name in the message.
int await_completion(rdma_cm_id* id, int (*call)(rdma_cm_id*, ibv_wc*), const char* name);

// Decodes the number of the shared receive queue in a server's private data. Returns nullopt if too short.
std::optional<uint32_t> shared_queue_number(std::span<const uint8_t> private_data);

// Adds the endpoint's device, addresses, queue pair number and message size to the JSON object.
void describe(rdma_cm_id* id, Output& output);

}  // namespace verbena::rdma_core
