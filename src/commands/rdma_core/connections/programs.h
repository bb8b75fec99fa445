// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbena::rdma_core {

// The main functions of the programs that use librdmacm. Each returns the exit status.
int rping(int argc, char** argv);
int ucmatose(int argc, char** argv);
int udaddy(int argc, char** argv);
int mckey(int argc, char** argv);
int cmtime(int argc, char** argv);
int rdma_client(int argc, char** argv);
int rdma_server(int argc, char** argv);
int rdma_xclient(int argc, char** argv);
int rdma_xserver(int argc, char** argv);

}  // namespace verbena::rdma_core
