// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// Runs a pingpong over RC, UC or UD and returns the exit status. The two ends exchange their queue pairs'
// addresses over TCP; then each queue pair sends a message for each one received.
int run_pingpong(const PingpongProgram& program, int argc, char** argv);

// Returns the device that the user chose, or null after reporting that there is none.
class DeviceList;
ibv_device* choose_device(const DeviceList& devices, const Settings& settings);

// Runs the pingpong over XRC between a server and `Settings::clients` clients. Returns the exit status. The
// server sends to each client's shared receive queue through the queue pairs of all clients in turn.
int run_xrc_pingpong(const PingpongProgram& program, int argc, char** argv);

}  // namespace verbena::rdma_core
