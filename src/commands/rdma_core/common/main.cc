// SPDX-License-Identifier: Apache-2.0
// main() of every program. VERBENA_PROGRAM is the name of the program and of its function
// (verbena_own_program() in CMakeLists.txt).
#include <cerrno>
#include <cstdio>
#include <exception>

#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {
int VERBENA_PROGRAM(int argc, char** argv);
}  // namespace verbena::rdma_core

int main(int argc, char** argv) {
  int status = 1;
  try {
    status = verbena::rdma_core::VERBENA_PROGRAM(argc, argv);
  } catch (const verbena::rdma_core::Failure& failure) {
    status = failure.status;
  } catch (const std::exception& error) {  // out of memory
    verbena::rdma_core::complain(error.what());
  }
  if (std::fflush(stdout) != 0 && status == 0) {
    verbena::rdma_core::complain_of(errno, "Couldn't write to standard output");
    status = 1;
  }
  return status;
}
