// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "commands/perf/cm_identifier.h"
#include "commands/perf/device.h"
#include "commands/perf/endpoint.h"
#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Connects the queue pairs of a test by librdmacm (-R): one connection after the other.
class CmPairs {
 public:
  // Begins to listen if this end is the server. REQUIRES: `parameters` outlives this object
  explicit CmPairs(const Parameters& parameters);

  // Begins the first connection: the client resolves the server's address, the server waits for the first
  // client. Returns the identifier of this connection. Its device is the one that the queue pairs must use.
  const CmIdentifier& first();

  // Connects all queue pairs, and adds them to the endpoint. `reads`: as for connection_parameters().
  void connect(Endpoint& endpoint, std::uint32_t reads);

 private:
  CmIdentifier take_next();
  void connect_one(Endpoint& endpoint, std::uint32_t reads);
  void accept_one(Endpoint& endpoint, std::uint32_t reads);
  void tell_number(Endpoint& endpoint) const;
  void learn_number(Endpoint& endpoint, const CmIdentifier& client, verbena::qp made,
                    const rdma_conn_param& wanted) const;
  // Returns whether both ends send datagrams. Then the server must learn the number of the client's queue
  // pair, too.
  bool needs_both_numbers() const;

  const Parameters& parameters_;
  const rdma_port_space space_;
  CmIdentifier listener_;
  CmIdentifier next_;  // of the next connection; null until first() begins it, and once it is used
};

}  // namespace verbena::perf
