// SPDX-License-Identifier: Apache-2.0
#include "agent_client/agent_dialer.h"

#include <chrono>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent_client/agent_starter.h"
#include "agent_client/message_socket.h"
#include "base/log.h"

namespace verbena::agent_client {
namespace {

constexpr Duration kRetryInterval = std::chrono::milliseconds(5);
constexpr Duration kStartInterval = std::chrono::milliseconds(500);

Result<AgentConnection> connect_to(uid_t uid) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(errno);
  const AgentAddress address(uid);
  if (::connect(socket.get(), address.address(), address.length) != 0) return fail(errno);
  if (::fcntl(socket.get(), F_SETFL, O_RDWR) != 0) return fail(errno);
  const auto peer = peer_credentials(socket.get());
  if (!peer) return fail(peer.error().code);
  if (peer->uid != 0 && peer->uid != ::geteuid()) {
    log_warning("the name of the agent of user {} is taken by user {}: not trusted", uid, peer->uid);
    return fail(EPERM);
  }
  return AgentConnection(std::move(socket), peer->uid);
}

}  // namespace

Result<AgentConnection> AgentDialer::open_or_start(TimePoint deadline, TimePoint start_after) {
  TimePoint next_start = start_after;
  for (;;) {
    auto connection = open();
    if (connection) return connection;
    const int error = connection.error().code;
    const bool may_come = error == ECONNREFUSED || error == EAGAIN;
    if (!may_come || (error == ECONNREFUSED && !may_start())) return connection;

    const TimePoint now = MonotonicClock::now();
    if (now >= deadline) return fail(error == EAGAIN ? ETIMEDOUT : ECONNREFUSED);
    if (error == ECONNREFUSED && now >= next_start) {
      next_start = now + kStartInterval;  // the first may have met one that was about to end
      const auto ready = start();
      if (!ready) return fail(ECONNREFUSED);
      wait_until_ready(ready->get(), POLLIN, deadline);
    } else {
      std::this_thread::sleep_for(kRetryInterval);
    }
  }
}

Result<AgentConnection> NamespaceDialer::open() {
  auto connection = connect_to(0);
  const uid_t own = ::geteuid();
  // EAGAIN: root's agent is there, and busy. Do not go past it to another.
  if (connection || own == 0 || connection.error().code == EAGAIN) return connection;
  return connect_to(own);
}

Result<UniqueFd> NamespaceDialer::start() {
  const std::string program = find_agent_program(options_.agent_program);
  if (!program.empty()) return start_agent(program);
  if (!std::exchange(missed_program_, true)) {
    log_error("no agent runs, and the program verbena-agent was not found: set VERBENA_AGENT to it");
  }
  return fail(ECONNREFUSED);
}

}  // namespace verbena::agent_client
