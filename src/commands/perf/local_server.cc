// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/local_server.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <utility>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/format.h"
#include "base/unique_fd.h"
#include "commands/perf/failure.h"
#include "commands/perf/follower.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

[[noreturn]] void serve(UniqueFd connection, const Parameters& own, pid_t parent) {
  // The parent may have ended before the kernel knew that it matters.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(1);
  int status = 1;
  try {
    const auto channel = channel_over(std::move(connection));
    status = serve_client(*channel, own);
  } catch (const std::exception& error) {
    rdma_core::complain(verbena::format("the server: {}", error.what()));
  }
  ::_exit(status);
}

}  // namespace

pid_t serve_in_child(UniqueFd connection, const Parameters& own, int clients_end) {
  std::fflush(nullptr);  // the child has its own copy of what is not written yet
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) fail("cannot start a process for the server");
  if (child == 0) {
    if (clients_end >= 0)
      ::close(clients_end);  // otherwise this process would not see that the client closes it
    serve(std::move(connection), own, parent);
  }
  return child;
}

LocalServer::LocalServer(const Parameters& own) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    fail("cannot make a socket pair");
  UniqueFd mine(ends[0]);
  process_ = serve_in_child(UniqueFd(ends[1]), own, mine.get());
  channel_ = channel_over(std::move(mine));
}

LocalServer::~LocalServer() {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {  // a second for its orderly end
    if (::waitpid(process_, nullptr, WNOHANG) != 0) return;
    ::usleep(10000);
  }
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

}  // namespace verbena::perf
