// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/rdma_cma.h>
#include <verbena/verbs.hpp>

#include "commands/perf/parameters.h"

// Connections by librdmacm, one step after the other: its calls wait for their end.
namespace verbena::perf {

struct DestroyIdentifier {
  void operator()(rdma_cm_id* last) const { rdma_destroy_id(last); }
};
using CmIdentifier = std::shared_ptr<rdma_cm_id>;

// Resolves the server's address and the route to it. The identifier has a device then.
CmIdentifier resolve_server(const Parameters& parameters, rdma_port_space space);
// Listens at the test's port.
CmIdentifier listen_for_clients(const Parameters& parameters, rdma_port_space space, int backlog);
// Waits for the next client.
CmIdentifier next_client(const CmIdentifier& listener);

// The device of an identifier, which librdmacm keeps open.
verbena::context device_of(const CmIdentifier& identifier);
// Makes the identifier's queue pair.
verbena::qp make_pair(const CmIdentifier& identifier, const verbena::pd& domain, verbena::transport transport,
                      const verbena::qp_options& options);

// The parameters of a connection as perftest gives them. `reads`: READs and atomics under way, or 0.
rdma_conn_param connection_parameters(const Parameters& parameters, std::uint32_t reads);
// Connects to the server, or returns false if it has refused.
bool connect(const CmIdentifier& identifier, rdma_conn_param wanted);
void accept(const CmIdentifier& identifier, rdma_conn_param wanted);

// Waits before a refused connection is tried again: perftest's server listens only after it has said that it
// is ready. Throws std::runtime_error after the last attempt. `attempt`: from 0.
void wait_for_listener(int attempt);

}  // namespace verbena::perf
