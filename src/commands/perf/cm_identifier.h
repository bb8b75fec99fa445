// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include <rdma/rdma_cma.h>
#include <verbena/verbs.hpp>

#include "commands/perf/parameters.h"

// Functions that set up connections by librdmacm. Each function does one step and waits until it is complete.
// Functions throw std::runtime_error if their step fails.
namespace verbena::perf {

struct DestroyIdentifier {
  void operator()(rdma_cm_id* last) const { rdma_destroy_id(last); }
};
using CmIdentifier = std::shared_ptr<rdma_cm_id>;

// Resolves the server's address and the route to it. Returns an identifier that has a device.
CmIdentifier resolve_server(const Parameters& parameters, rdma_port_space space);
// Listens at the test's port.
CmIdentifier listen_for_clients(const Parameters& parameters, rdma_port_space space, int backlog);
// Waits for the next client.
CmIdentifier next_client(const CmIdentifier& listener);

// Returns the device of an identifier. The result does not close the device, which librdmacm keeps open.
verbena::context device_of(const CmIdentifier& identifier);
// Makes the identifier's queue pair.
verbena::qp make_pair(const CmIdentifier& identifier, const verbena::pd& domain, verbena::transport transport,
                      const verbena::qp_options& options);

// Returns the parameters of a connection as perftest chooses them. `reads`: the number of READs and atomics
// that may be under way, or 0 for other tests.
rdma_conn_param connection_parameters(const Parameters& parameters, std::uint32_t reads);
// Connects to the server. Returns false if the server has refused, or has not answered in time.
bool connect(const CmIdentifier& identifier, rdma_conn_param wanted);
// Accepts the connection request of a client.
void accept(const CmIdentifier& identifier, rdma_conn_param wanted);

// Waits 100 ms before the caller tries a refused connection again: perftest's server says that it is ready
// before it listens. `attempt`: the number of the attempt that was refused, from 0. Throws std::runtime_error
// after 30 attempts.
void wait_for_listener(int attempt);

}  // namespace verbena::perf
