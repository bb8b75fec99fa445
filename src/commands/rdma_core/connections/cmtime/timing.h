// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/connections/handles.h"

namespace verbena::rdma_core {

// What a command line of cmtime asks for.
struct TimingLine {
  std::string destination;
  std::string source;
  std::string port = "7471";
  int connections = 100;
  int retries = 2;
  int milliseconds = 2000;
  bool json = false;
};

// What both ends make for each connection.
ibv_qp_init_attr timed_queue_pair();

// The addresses of one end. 0, or what the program ends with, after it has said so; `what` is what the
// sentence calls the function that failed.
int find_timed_addresses(const TimingLine& line, bool passive, const char* what, const Output& output,
                         AddressInfo& found);

// Both ends, on a channel of their own. The answer is the exit status: the server's when it cannot serve, for
// it serves until it is killed.
int run_timed_server(const TimingLine& line, rdma_event_channel* channel);
int run_timed_client(const TimingLine& line, rdma_event_channel* channel);

}  // namespace verbena::rdma_core
