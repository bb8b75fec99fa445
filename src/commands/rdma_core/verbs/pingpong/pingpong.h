// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands/rdma_core/verbs/pingpong/settings.h"

namespace verbena::rdma_core {

// A pingpong over RC, UC or UD, from its command line to its exit status: two ends tell each other by TCP
// where their queue pairs are, then each queue pair sends a message when it has received one.
int run_pingpong(const PingpongProgram& program, int argc, char** argv);

// The device that is asked for, or null after a complaint.
class DeviceList;
ibv_device* choose_device(const DeviceList& devices, const Settings& settings);

}  // namespace verbena::rdma_core
