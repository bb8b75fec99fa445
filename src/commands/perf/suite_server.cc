// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/suite_server.h"

#include <cstdio>
#include <utility>

#include <sys/wait.h>

#include "base/unique_fd.h"
#include "commands/perf/exchange.h"
#include "commands/perf/local_server.h"

namespace verbena::perf {
int serve_suites(const Parameters& own) {
  const UniqueFd listener = listen_by_tcp(own);
  std::printf("Serving suites and sweeps at port %u until Ctrl-C\n", own.port);
  std::fflush(stdout);
  for (;;) {
    UniqueFd connection = accept_client(listener);
    // A failed test must not end the server, and a process of its own leaves no state to the next client.
    int status = 0;
    ::waitpid(serve_in_child(std::move(connection), own), &status, 0);
    std::printf("a client %s\n", status == 0 ? "is done" : "has failed");
    std::fflush(stdout);
  }
}

}  // namespace verbena::perf
