// SPDX-License-Identifier: Apache-2.0
#include "agent/client_table.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <unistd.h>

#include "agent_client/message_socket.h"
#include "base/log.h"
#include "base/time.h"

namespace verbena::agent {
namespace {

constexpr int kBacklog = 1024;
constexpr int kClientsPerRound = 16;
constexpr size_t kMaxSessions = 8192;
constexpr size_t kMaxSessionsOfStranger = 1024;  // of one user whom a root agent serves
constexpr Duration kHelloTimeout = std::chrono::seconds(10);
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

}  // namespace

ClientTable::ClientTable(EventLoop& loop, Surroundings surroundings)
    : loop_(loop), surroundings_(std::move(surroundings)) {}

Result<void> ClientTable::listen(UniqueFd name) {
  listener_ = std::move(name);
  if (::listen(listener_.get(), kBacklog) != 0) return fail(errno);
  loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept_some(); });
  return {};
}

void ClientTable::accept_some() {
  for (int i = 0; i < kClientsPerRound; ++i) {
    if (!accept_one()) return;
  }
}

bool ClientTable::accept_one() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) pause();
    return errno == EINTR || errno == ECONNABORTED;
  }
  const auto peer = agent_client::peer_credentials(socket.get());
  if (!peer || !has_room_for(peer->uid)) return true;
  const uint64_t id = next_++;
  sessions_[id] = surroundings_.make_session(id, std::move(socket), *peer);
  loop_.at(MonotonicClock::now() + kHelloTimeout, [this, id] {
    const Session* session = find(id);
    if (session != nullptr && !session->is_greeted()) close(id);
  });
  surroundings_.on_come(id);
  return true;
}

bool ClientTable::has_room_for(uid_t user) const {
  const uid_t own = ::geteuid();
  if (own != 0 && user != own && user != 0) {
    log_info("user {} is not served by this agent", user);
    return false;
  }
  const auto of_this_user = static_cast<size_t>(std::count_if(
      sessions_.begin(), sessions_.end(), [&](const auto& entry) { return entry.second->uid() == user; }));
  if (sessions_.size() >= kMaxSessions || (user != own && of_this_user >= kMaxSessionsOfStranger)) {
    log_warning("user {} has too many connections", user);
    return false;
  }
  return true;
}

// Out of descriptors: the listener would stay readable and keep us busy for nothing.
void ClientTable::pause() {
  log_warning("out of descriptors: no new clients for a moment");
  loop_.set_events(listener_.get(), 0);
  loop_.at(MonotonicClock::now() + kAcceptPause, [this] { loop_.set_events(listener_.get(), EPOLLIN); });
}

void ClientTable::close(uint64_t id) {
  loop_.later([this, id] {
    if (sessions_.erase(id) != 0) surroundings_.on_go(id);
  });
}

void ClientTable::clear() {
  listener_.reset();
  // What a session's end brings about must not meet those that are half gone.
  const auto ending = std::exchange(sessions_, {});
}

Session* ClientTable::find(uint64_t id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

}  // namespace verbena::agent
