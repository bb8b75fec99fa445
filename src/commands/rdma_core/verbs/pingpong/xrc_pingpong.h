// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// Runs the pingpong over XRC between a server and `Settings::clients` clients. Returns the exit status. The
// server sends to each client's shared receive queue through the queue pairs of all clients in turn.
int run_xrc_pingpong(const PingpongProgram& program, int argc, char** argv);

}  // namespace verbena::rdma_core
