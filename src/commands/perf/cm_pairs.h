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
  // The server listens from now on.
  explicit CmPairs(const Parameters& parameters);

  // Resolves the server's address, or waits for the first client. Returns the identifier, whose device the
  // queue pairs must use.
  const CmIdentifier& first();

  // Connects all queue pairs, and adds them to the endpoint.
  void connect(Endpoint& endpoint, std::uint32_t reads);

 private:
  CmIdentifier take_next();
  void connect_one(Endpoint& endpoint, std::uint32_t reads);
  void accept_one(Endpoint& endpoint, std::uint32_t reads);
  void tell_number(Endpoint& endpoint) const;
  void learn_number(Endpoint& endpoint, const CmIdentifier& client, verbena::qp made,
                    const rdma_conn_param& wanted) const;
  // Whether both ends send, so that the server must learn the client's queue pair, too.
  bool needs_both_numbers() const;

  const Parameters& parameters_;
  const rdma_port_space space_;
  CmIdentifier listener_;
  CmIdentifier next_;  // of the next connection; empty if none is there yet
};

}  // namespace verbena::perf
