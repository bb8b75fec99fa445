// SPDX-License-Identifier: Apache-2.0
#include "agent/takeover/agent_name.h"

#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/paths/state_directory.h"
#include "base/paths/state_path.h"
#include "base/paths/users.h"
#include "base/same_file.h"
#include "base/time.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

using control::AgentAddress;

// Maximum wait for the owner of the abstract name to identify itself. An agent does so sooner, even one that
// is about to listen or has no room for clients.
constexpr Duration kNamePatience = std::chrono::milliseconds(500);
constexpr Duration kNameInterval = std::chrono::milliseconds(10);
constexpr int kAttempts = 16;
// Maximum wait for the owner of the lock, an agent that starts or ends, to listen or to release the lock. Its
// machine or disk may be slow. The process that started this one waits no longer than that
// (control/client/agent_connection.h).
constexpr Duration kLockPatience = std::chrono::seconds(10);
constexpr Duration kLockInterval = std::chrono::milliseconds(2);

Result<UniqueFd> open_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(errno);
  return socket;
}

Result<UniqueFd> bind_socket(const AgentAddress& address) {
  auto socket = open_socket();
  if (socket && ::bind(socket->get(), address.address(), address.length) != 0) return fail(errno);
  return socket;
}

// Returns the user that listens at the address. ECONNREFUSED, EAGAIN: the user is not known.
Result<uid_t> listener_at(const AgentAddress& address) {
  const auto socket = open_socket();
  if (!socket) return fail(socket.error().code);
  if (::connect(socket->get(), address.address(), address.length) != 0) return fail(errno);
  const auto peer = control::peer_credentials(socket->get());
  if (!peer) return fail(peer.error().code);
  return peer->uid;
}

}  // namespace

Result<AgentName> AgentName::take(UniqueFd passed) {
  AgentName name;
  if (const auto taken = name.take_directory(); !taken) {
    if (taken.error().code == EADDRINUSE) return fail(EADDRINUSE);
    log_warning("no socket file (errno {}): programs find this agent by its abstract name only",
                taken.error().code);
  }
  if (const auto taken = name.take_abstract_name(std::move(passed)); !taken) {
    if (taken.error().code != EPERM || name.file_.empty()) return fail(EADDRINUSE);
    log_warning(
        "the abstract name of this agent is taken by another user: programs of former releases, and "
        "those that do not see {}, do not find it",
        name.file_);
  }
  if (!name.file_.empty()) {
    if (const auto made = name.make_socket_file(); !made) return fail(made.error().code);
  }
  return name;
}

// Locks a separate lock file, because any process that can read a directory can flock() it. An ending agent
// removes the directory and its files, so the locked file may be gone already; then this is tried again.
Result<void> AgentName::take_directory() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto directory = paths::make_state_directory();
    if (!directory) return fail(directory.error().code);
    const paths::PathText file = paths::agent_socket_path(paths::own_user());
    if (!file.valid() || !AgentAddress::fits(file.view())) return fail(ENAMETOOLONG);
    file_ = file.c_str();
    lock_file_ = lock_file_in(*directory);
    const auto locked = lock();
    if (locked && holds_lock()) return {};
    const int error = locked ? ENOENT : locked.error().code;
    if (error == ENOENT) continue;
    file_.clear();
    return fail(error);
  }
  file_.clear();
  return fail(EADDRINUSE);
}

// Locks the file. If two agents start at once, one gets the lock and the other ends once the first listens:
// then the program that started it finds an agent. An agent releases the lock when it ends, even if it is
// killed.
Result<void> AgentName::lock() {
  lock_.reset(::open(lock_file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock_) return fail(errno);
  const TimePoint patience = MonotonicClock::now() + kLockPatience;
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (listener_at(AgentAddress(std::string_view(file_))) || MonotonicClock::now() >= patience) {
      return fail(EADDRINUSE);
    }
    std::this_thread::sleep_for(kLockInterval);
  }
  return {};
}

bool AgentName::holds_lock() const {
  return lock_ && is_same_file(lock_.get(), lock_file_.c_str());
}

// EPERM: another user has the name.
Result<void> AgentName::take_abstract_name(UniqueFd passed) {
  if (passed) {
    sockets_.push_back(std::move(passed));
    return {};
  }
  const uid_t own = ::geteuid();
  const AgentAddress address(paths::own_user());
  const TimePoint patience = MonotonicClock::now() + kNamePatience;
  for (;;) {
    auto socket = bind_socket(address);
    if (socket) {
      sockets_.push_back(std::move(*socket));
      return {};
    }
    if (socket.error().code != EADDRINUSE) return fail(socket.error().code);
    const auto listener = listener_at(address);
    if (listener) return fail(*listener == own ? EADDRINUSE : EPERM);
    if (MonotonicClock::now() >= patience) return fail(file_.empty() ? EADDRINUSE : EPERM);
    std::this_thread::sleep_for(kNameInterval);
  }
}

// Replaces the file of a killed agent, if there is one: this agent has the lock. The socket gets its name
// only after its mode: 0666 for root's agent, which serves all users, 0600 for a user's agent.
Result<void> AgentName::make_socket_file() {
  const std::string fresh = file_ + ".fresh";
  ::unlink(fresh.c_str());
  auto socket = bind_socket(AgentAddress(std::string_view(fresh)));
  if (!socket) return fail(socket.error().code);
  const mode_t mode = paths::own_user() == 0 ? 0666 : 0600;
  if (::chmod(fresh.c_str(), mode) != 0 || ::rename(fresh.c_str(), file_.c_str()) != 0) return fail(errno);
  sockets_.push_back(std::move(*socket));
  return {};
}

void AgentName::give_up() {
  if (!file_.empty() && holds_lock()) ::unlink(file_.c_str());
  file_.clear();
  sockets_.clear();
  lock_.reset();
}

}  // namespace verbena::agent
