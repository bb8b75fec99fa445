// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "commands/rdma/agent_system.h"
#include "commands/rdma/run.h"

namespace {

using verbena::commands::rdma::Answer;

// Prints the answer and clears it. False: standard output is closed.
bool print(Answer& answer) {
  std::fwrite(answer.complaints.data(), 1, answer.complaints.size(), stderr);
  std::fwrite(answer.out.data(), 1, answer.out.size(), stdout);
  answer.complaints.clear();
  answer.out.clear();
  return std::fflush(stdout) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    verbena::commands::rdma::AgentSystem system;
    Answer answer = verbena::commands::rdma::run({argv, argv + argc}, system, print);
    if (print(answer)) return answer.status;
    std::fprintf(stderr, "rdma: cannot write to standard output: %s\n", std::strerror(errno));
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rdma: %s\n", error.what());
    return 1;
  }
}
