// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::rdma_core {

// The main functions of the programs that use libibverbs. Each returns the exit status.
int ibv_devices(int argc, char** argv);
int ibv_devinfo(int argc, char** argv);
int ibv_asyncwatch(int argc, char** argv);
int ibv_rc_pingpong(int argc, char** argv);
int ibv_uc_pingpong(int argc, char** argv);
int ibv_ud_pingpong(int argc, char** argv);
int ibv_srq_pingpong(int argc, char** argv);
int ibv_xsrq_pingpong(int argc, char** argv);

}  // namespace verbena::rdma_core
