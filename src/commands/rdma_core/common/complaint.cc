// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/complaint.h"

#include <cstdio>
#include <cstring>

namespace verbena::rdma_core {

void complain(const std::string& sentence, const std::string& remedy) {
  // Keep the order of standard output and standard error.
  std::fflush(stdout);
  const std::string line = remedy.empty() ? sentence + "\n" : sentence + " (" + remedy + ")\n";
  std::fputs(line.c_str(), stderr);
}

void complain_of(int error, const std::string& sentence, const std::string& remedy) {
  complain(sentence + ": " + std::strerror(error), remedy);
}

}  // namespace verbena::rdma_core
