// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// The pingpong over XRC, from its command line to its exit status: a server and so many clients. What the
// server sends a client's shared receive queue goes through the queue pairs of all clients in turn.
int run_xrc_pingpong(const PingpongProgram& program, int argc, char** argv);

}  // namespace verbena::rdma_core
