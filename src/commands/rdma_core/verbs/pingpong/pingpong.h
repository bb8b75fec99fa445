// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// Runs a pingpong and returns the exit status. The two ends exchange their queue pairs' addresses over TCP;
// then each queue pair sends a message for each one received.
int run_pingpong(const PingpongProgram& program, int argc, char** argv);

// Plays over XRC between a server and `Settings::clients` clients. Returns false after reporting an error.
// The server sends to each client's shared receive queue through the queue pairs of all clients in turn.
bool play_over_xrc(const PingpongProgram& program, const Settings& settings, ibv_device* device,
                   Output& output);

}  // namespace verbena::rdma_core
