// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>

#include <poll.h>
#include <sys/prctl.h>

#include "agent_client/client.h"
#include "base/time.h"

namespace verbena::agent {
namespace {

constexpr Duration kPatience = std::chrono::minutes(1);

}  // namespace

int keep_vault() {
  static char name[] = "verbena-keeper";
  program_invocation_short_name = name;  // what the client says in its hello
  agent_client::ConnectOptions options;
  options.start_agent = std::getenv("NOTIFY_SOCKET") == nullptr;
  options.agent_program = "/proc/self/exe";
  const auto client = agent_client::Client::connect(options);
  if (!client) return 1;
  ::prctl(PR_SET_NAME, name);  // from now on it is one
  TimePoint last_seen = MonotonicClock::now();
  while (MonotonicClock::now() - last_seen < kPatience) {
    pollfd events{(*client)->event_fd(), POLLIN, 0};
    ::poll(&events, 1, -1);
    (*client)->next_links();
    if ((*client)->links()) last_seen = MonotonicClock::now();
  }
  return 0;
}

}  // namespace verbena::agent
