// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <nlohmann/json.hpp>

#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"
#include "commands/perf/session.h"

namespace verbena::perf {

// The client of a sweep or a suite. It orders one test after another from a server that runs follow_orders().
// An order names a test and its settings (commands/perf/orders.h).
class Director {
 public:
  // Exchanges versions with the server, and reads its description. `option`, such as "--sweep", begins the
  // error message if the server takes no orders. Throws std::runtime_error.
  Director(std::unique_ptr<Channel> channel, const char* option);

  // Returns the server's description of itself (describe_end()).
  const nlohmann::json& peer() const { return peer_; }
  // Returns the MTU of the server's port, 256 to 4096 bytes. Throws std::exception if the server names
  // another number.
  std::uint32_t peer_mtu() const;

  // The results of a test that run() has run at both ends. `own` is the outcome at this end. `peer` is the
  // report of the server: an object whose array `results` has the first row of the server's results, or no
  // row. The row has the form of --json. run() throws std::exception if the test cannot be done.
  struct Both {
    Outcome own;
    nlohmann::json peer;
  };
  Both run(const Parameters& parameters);

  // Tells the server that no further order comes.
  void end();

 private:
  std::unique_ptr<Channel> channel_;
  nlohmann::json peer_;
};

}  // namespace verbena::perf
