// SPDX-License-Identifier: Apache-2.0
#include "control/client/agent_dialer.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/failed_call.h"
#include "base/format.h"
#include "base/log.h"
#include "base/paths/state_path.h"
#include "base/paths/users.h"
#include "control/model/agent_starter.h"
#include "control/model/message_socket.h"

namespace verbena::control {
namespace {

constexpr Duration kLookInterval = std::chrono::milliseconds(50);
constexpr Duration kStartInterval = std::chrono::milliseconds(500);

// How long a listener that is found by an agent's abstract name may have no room for a connection. A socket
// file shows that its listener is an agent; the abstract name does not.
constexpr Duration kBusyPatience = std::chrono::milliseconds(500);

// Whether the error means that nobody listens there, or nobody to be trusted.
bool is_absence(int error) {
  return error == ECONNREFUSED || error == ENOENT || error == EPERM || error == EACCES;
}

// Where an agent was looked for: the socket file of `owner`, or the abstract name. In a user namespace
// without a number for root, the kernel shows root's agent under an ambiguous user ID. Behind root's socket
// file it is trusted all the same, because the file's directory is.
struct Place {
  uid_t owner;
  bool is_file;
};

bool is_trusted(const paths::PeerProcess& listener, const Place& place) {
  if (listener.shown == 0 || paths::is_own_users(listener)) return true;
  return place.is_file && place.owner == 0 && paths::is_ambiguous(listener.shown);
}

// The listener's user. The kernel may show this process's user as root, and root as nobody
// (base/paths/users.h). REQUIRES: is_trusted(listener)
uid_t user_of(const paths::PeerProcess& listener) {
  if (paths::is_own_users(listener)) return paths::own_user();
  return paths::is_ambiguous(listener.shown) ? 0 : listener.shown;
}

// Connects and checks the listener. EPERM: it is not trusted.
Result<AgentConnection> connect_to(const AgentAddress& address, const Place& place) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(errno);
  if (::connect(socket.get(), address.address(), address.length) != 0) return fail(errno);
  if (::fcntl(socket.get(), F_SETFL, O_RDWR) != 0) return fail(errno);
  const auto peer = peer_credentials(socket.get());
  if (!peer) return fail(peer.error().code);
  const paths::PeerProcess listener{.pid = peer->pid, .shown = peer->uid, .socket = socket.get()};
  if (!is_trusted(listener, place)) return fail(EPERM);
  return AgentConnection(std::move(socket), user_of(listener), peer->pid);
}

Result<AgentConnection> connect_by_file(uid_t owner) {
  const paths::PathText file = paths::agent_socket_path(owner);
  if (!file.valid() || !AgentAddress::fits(file.view())) return fail(ECONNREFUSED);
  return connect_to(AgentAddress(file.view()), {.owner = owner, .is_file = true});
}

}  // namespace

AdminError AgentDialer::error_of(int code) const {
  AdminError error{code, std::strerror(code)};
  if (code == ETIMEDOUT) error.text = "agent does not respond: its queue of new connections is full";
  if (code == ECONNREFUSED) {
    error.text = verbena::format("no agent runs, and {}",
                                 cannot_start_.empty() ? "none could be started" : cannot_start_);
  }
  because(code, "{}", error.text);
  return error;
}

Result<AgentConnection> AgentDialer::open_or_start(TimePoint& give_up, const Patience& patience,
                                                   TimePoint start_after, Duration& for_starts) {
  TimePoint next_start = start_after;
  TimePoint busy_since{};
  for (;;) {
    auto connection = open();
    if (connection) return connection;
    const int error = connection.error().code;
    const bool may_come = error == ECONNREFUSED || error == EAGAIN;
    if (!may_come || (error == ECONNREFUSED && !may_start())) return connection;

    const TimePoint now = MonotonicClock::now();
    if (error == EAGAIN) {  // a full queue shows that an agent lives
      if (busy_since == TimePoint{}) busy_since = now;
      const Duration busy = now - busy_since;
      if (busy >= patience.to_answer) return fail(ETIMEDOUT);
      const Duration pause = std::clamp(busy / 8, kRetryInterval, kLookInterval);
      std::this_thread::sleep_for(pause);
      give_up += MonotonicClock::now() - now;
      continue;
    }
    busy_since = {};
    if (now >= give_up) return fail(ECONNREFUSED);
    if (now >= next_start) {
      next_start = now + kStartInterval;  // the started agent may have met one that was about to end
      const auto ready = start();
      if (!ready) return fail(ECONNREFUSED);
      connection = open_started(ready->get(), std::max(give_up, now + for_starts));
      const Duration took = std::min(MonotonicClock::now() - now, for_starts);
      for_starts -= took;
      if (!connection && connection.error().code == ECONNREFUSED) continue;
      give_up += took;
      if (connection) return connection;
    } else {
      std::this_thread::sleep_for(kRetryInterval);
    }
  }
}

// Watches for other agents, too. A process that inherited the write end of `ready` by a fork may keep it
// open, and the agent may have found another one that listened before it.
Result<AgentConnection> AgentDialer::open_started(int ready, TimePoint give_up) {
  for (;;) {
    const TimePoint now = MonotonicClock::now();
    const bool is_ready = wait_until_ready(ready, POLLIN, std::min(give_up, now + kLookInterval));
    auto connection = open();
    if (connection || is_ready || MonotonicClock::now() >= give_up) return connection;
  }
}

// Tries root's agent first. A socket file shows that its listener is an agent: if that is busy, no other is
// tried.
Result<AgentConnection> NamespaceDialer::open() {
  const uid_t own = paths::own_user();
  for (const uid_t owner : {uid_t{0}, own}) {
    auto connection = connect_by_file(owner);
    if (connection || !is_absence(connection.error().code)) return connection;
    connection = open_by_name(owner);
    if (connection || !is_absence(connection.error().code)) return connection;
    if (own == 0) break;
  }
  return fail(ECONNREFUSED);
}

// Anybody can take an abstract name, answer nobody, and have no room for a connection. So a listener that
// does not prove to be an agent is ignored: at once if untrusted, after a while if busy.
Result<AgentConnection> NamespaceDialer::open_by_name(uid_t owner) {
  auto connection = connect_to(AgentAddress(owner), {.owner = owner, .is_file = false});
  const int error = connection ? 0 : connection.error().code;
  if (error == EPERM && !std::exchange(told_of_stranger_, true)) {
    log_warning("the abstract name of the agent of user {} is taken by another user: not trusted", owner);
  }
  TimePoint& since = busy_since_[owner == 0 ? 0 : 1];
  if (error != EAGAIN) {
    since = {};
    return connection;
  }
  const TimePoint now = MonotonicClock::now();
  if (since == TimePoint{}) since = now;
  if (now - since >= kBusyPatience) return fail(ECONNREFUSED);
  return connection;
}

Result<UniqueFd> NamespaceDialer::start() {
  if (has_rights_of_another()) {
    cannot_start_ =
        "a program with more rights than its user (set-user-ID, set-group-ID, file capabilities) starts "
        "none: start "
        "verbena-agent beforehand";
    if (!std::exchange(told_of_user_, true)) log_error("no agent runs, and {}", cannot_start_);
    return fail(ECONNREFUSED);
  }
  const std::string program = find_agent_program(options_.agent_program);
  if (program.empty()) {
    cannot_start_ = "the program verbena-agent was not found: set VERBENA_AGENT to it";
    if (!std::exchange(missed_program_, true)) log_error("no agent runs, and {}", cannot_start_);
    return fail(ECONNREFUSED);
  }
  auto started = start_agent(program);
  // The reason to report if the agent does not come.
  cannot_start_ =
      started ? verbena::format(
                    "{} was started and has ended without serving anybody: 'verbena agent' "
                    "shows why",
                    program)
              : verbena::format("{} cannot be started: {}", program, why_not_started(started.error().code));
  return started;
}

}  // namespace verbena::control
