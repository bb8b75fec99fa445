// SPDX-License-Identifier: Apache-2.0
#include <cerrno>  // program_invocation_short_name
#include <chrono>
#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/sessions/served_users.h"
#include "agent/takeover/stopped_processes.h"
#include "base/time.h"
#include "commands/agent/beside_agent.h"
#include "control/client/client.h"

namespace verbena::agent {
namespace {

constexpr Duration kPatience = std::chrono::minutes(1);

// Returns the path of the agent that is installed now. After an upgrade that is not the program that this
// process runs.
std::string agent_program() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  constexpr std::string_view kGone = " (deleted)";
  std::string_view program(path, length > 0 && length < PATH_MAX ? static_cast<size_t>(length) : 0);
  if (program.ends_with(kGone)) program.remove_suffix(kGone.size());
  return program.empty() || ::access(std::string(program).c_str(), X_OK) != 0 ? "/proc/self/exe"
                                                                              : std::string(program);
}

}  // namespace

int stand_by() {
  static char name[] = "verbena-keeper";
  program_invocation_short_name = name;  // the program name in the client's hello
  ::unsetenv("VERBENA_AGENT");           // the next agent is this program
  control::ConnectOptions options;
  options.start_agent = ::secure_getenv("NOTIFY_SOCKET") == nullptr;
  options.agent_program = agent_program();
  const auto client = control::Client::connect(options);
  if (!client) return 1;
  ::prctl(PR_SET_NAME, name);  // only after connect(): from now on the process holds a takeover state
  StoppedAgent stopped_agent;
  TimePoint last_seen = MonotonicClock::now();
  while (MonotonicClock::now() - last_seen < kPatience) {
    auto [agent, takeover_state] = (*client)->takeover_state();
    stopped_agent.watch(agent, std::move(takeover_state));
    pollfd events{(*client)->event_fd(), POLLIN, 0};
    ::poll(&events, 1, -1);
    (*client)->next_links();
    if ((*client)->links()) last_seen = MonotonicClock::now();
  }
  return 0;
}

}  // namespace verbena::agent
