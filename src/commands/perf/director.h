// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <nlohmann/json.hpp>

#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"
#include "commands/perf/session.h"

namespace verbena::perf {

// The end that gives orders: runs one test after another with a server that follows (follow_orders()).
class Director {
 public:
  // `option` begins the error message if the peer takes no orders. Throws std::runtime_error.
  Director(std::unique_ptr<Channel> channel, const char* option);

  // The server's description of itself (describe_end()).
  const nlohmann::json& peer() const { return peer_; }
  // The MTU of the server's port, 256 to 4096 bytes. Throws std::exception if the server names another one.
  std::uint32_t peer_mtu() const;

  // Runs a test at both ends. Both reports have the form of --json, the peer's only its first row. Throws
  // std::exception if it cannot be done.
  struct Both {
    Outcome own;
    nlohmann::json peer;
  };
  Both run(const Parameters& parameters);

  // Lets the server go.
  void end();

 private:
  std::unique_ptr<Channel> channel_;
  nlohmann::json peer_;
};

}  // namespace verbena::perf
