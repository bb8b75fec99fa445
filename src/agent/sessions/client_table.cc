// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/client_table.h"

#include <pthread.h>

#include "base/detached_thread.h"
#include "base/socket_option.h"
#include "control/model/message_socket.h"

namespace verbena::agent {
namespace {

constexpr int kBacklog = 1024;
constexpr int kClientsPerRound = 16;
constexpr size_t kMaxSessions = 8192;
constexpr Duration kHelloTimeout = std::chrono::seconds(10);
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr Duration kRefusalPause = std::chrono::milliseconds(5);
constexpr size_t kListenerStack = 256 << 10;

// Runs on a thread of its own.
void* close_listener(void* listener) {
  ::pthread_setname_np(::pthread_self(), "verbena-listen");
  const std::unique_ptr<UniqueFd> owned(static_cast<UniqueFd*>(listener));
  return nullptr;
}

}  // namespace

Quota::Size ClientTable::room_with(size_t descriptors) {
  return Quota::Size::of(std::min(kMaxSessions, descriptors * 15 / 32 / kDescriptorsOfClient));
}

ClientTable::ClientTable(EventLoop& loop, ClientSockets& sockets, Quota::Size room, AgentHost& agent,
                         MakeSession make_session)
    : loop_(loop),
      sockets_(sockets),
      agent_(agent),
      make_session_(std::move(make_session)),
      quota_(std::make_shared<Quota>(room, ::geteuid())) {}

Result<void> ClientTable::listen(std::vector<UniqueFd> names) {
  for (UniqueFd& name : names) {
    const int socket = name.get();
    const bool is_passed = get_option<int>(socket, SOL_SOCKET, SO_ACCEPTCONN).value_or(0) != 0;
    listeners_.push_back({std::move(name), is_passed});
    if (::listen(socket, kBacklog) != 0) return fail(errno);
    network_namespace_ = network_namespace_of(socket);
    loop_.watch(socket, EPOLLIN, [this](uint32_t) { accept_some(); });
  }
  return {};
}

// The kernel frees a socket's name first, and then closes what is in the socket. So each socket has a thread:
// the close of one does not keep the name of the other. The end of the process interrupts a lingering close.
// Where no thread can be started, the socket is closed by the end of the process, which lingers for nobody.
void ClientTable::stop_listening() {
  for (Listener& listener : std::exchange(listeners_, {})) {
    loop_.forget(listener.socket.get());
    if (!listener.is_passed) ::shutdown(listener.socket.get(), SHUT_RDWR);
    auto owned = std::make_unique<UniqueFd>(std::move(listener.socket));
    if (start_detached_thread(close_listener, owned.get(), kListenerStack)) {
      owned.release();  // owned by the thread now
    } else {
      (void)owned->release();
    }
  }
}

bool ClientTable::accept_some() {
  int accepted = 0;
  while (accepted < kClientsPerRound && accept_one()) ++accepted;
  return accepted > 0;
}

// Accepts from the sockets in turn: a user that fills the queue of one cannot block clients of another.
bool ClientTable::accept_one() {
  for (size_t tried = 0; tried < listeners_.size(); ++tried) {
    const int listener = listeners_[next_listener_++ % listeners_.size()].socket.get();
    if (accept_from(listener)) return true;
  }
  return false;
}

bool ClientTable::accept_from(int listener) {
  UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    const bool try_at_once = errno == EINTR || errno == ECONNABORTED;
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      log_warning("out of descriptors: no new clients for a moment");
      pause(kAcceptPause);
    }
    return try_at_once;
  }
  const auto peer = control::peer_credentials(socket.get());
  if (!peer) return true;
  const ActingFor user(peer->uid);
  if (!is_of_our_network(socket.get(), *peer) || !has_room_for(socket.get(), *peer)) {
    return refuse(peer->uid, std::move(socket));
  }
  const uint64_t id = next_++;
  loop_.in_turn_of(peer->uid, [this, id] {
    begin(id);
    return false;
  });
  coming_[id] = {std::move(socket), *peer, take_share(quota_, peer->uid)};
  return true;
}

// Runs in the user's turn and not at accept(): a user that connects without end pays for its sessions.
void ClientTable::begin(uint64_t id) {
  auto node = coming_.extract(id);
  if (node.empty()) return;
  Coming& client = node.mapped();
  pass_descriptors(client.socket.get(), true);
  sessions_[id] = {client.peer.uid,
                   make_session_(id, std::move(client.socket), client.peer, std::move(client.share))};
  loop_.at_for(client.peer.uid, MonotonicClock::now() + kHelloTimeout, [this, id] {
    const Session* session = find(id);
    if (session != nullptr && !session->is_greeted()) close(id);
  });
  agent_.session_came(id);
}

// Whether the client is in the agent's network namespace. The file system shows the agent's socket file in
// other namespaces, too. A program there would get a slot, and with it packets and addresses of a network
// that it must not reach.
bool ClientTable::is_of_our_network(int socket, const ucred& peer) const {
  if (network_namespace_of(socket) == network_namespace_) return true;
  log_info("process {} of user {} is in another network namespace, and is not served", peer.pid, peer.uid);
  return false;
}

bool ClientTable::has_room_for(int socket, const ucred& peer) const {
  const uid_t own = ::geteuid(), user = peer.uid;
  if (paths::own_user() != 0 && user != own && user != 0) {
    log_info("user {} is not served by this agent", user);
    return false;
  }
  if (!paths::has_number({.pid = peer.pid, .shown = user, .socket = socket})) {
    log_warning(
        "process {} is not served: the kernel shows it as user {}, as it shows all users without a number in "
        "this agent's user namespace",
        peer.pid, user);
    return false;
  }
  if (!quota_->allows(user)) {
    log_warning("user {} has too many connections", user);
    return false;
  }
  if (user != own && sockets_.closer().is_behind(user)) {
    log_warning("user {} has sent too much that cannot be closed", user);
    return false;
  }
  return true;
}

// The socket may contain descriptors already, which must not be closed here. Only accept4(2) tells whose the
// next connection is. So nobody is accepted while too many refused ones wait to be shut down.
bool ClientTable::refuse(uid_t user, UniqueFd socket) {
  if (!expects_early_descriptors_ && !sockets_.closer().allows(user)) {
    for (const Listener& listener : listeners_) pass_descriptors(listener.socket.get(), false);
  }
  if (sockets_.refuse(user, std::move(socket))) return true;
  log_warning("too many refused clients wait to be disconnected: no new clients for a moment");
  pause(kRefusalPause);
  return false;
}

// Stops accepting for a while. Otherwise the listener stays readable and the loop spins.
void ClientTable::pause(Duration time) {
  loop_.at(MonotonicClock::now() + time, [this] {
    if (!sockets_.may_refuse()) return pause(kRefusalPause);
    for (const Listener& listener : listeners_) loop_.set_events(listener.socket.get(), EPOLLIN);
  });
  for (const Listener& listener : listeners_) loop_.set_events(listener.socket.get(), 0);
}

void ClientTable::close(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  loop_.in_turn_of(found->second.user, [this, id] {
    end(id);
    return false;
  });
}

void ClientTable::end(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  sessions_.erase(found);
  agent_.session_went(id);
}

void ClientTable::clear() {
  stop_listening();
  // Callbacks of an ending session must not find sessions that are half destroyed.
  const auto ending = std::exchange(sessions_, {});
  for (auto& [id, client] : std::exchange(coming_, {})) {
    sockets_.refuse(client.peer.uid, std::move(client.socket));
  }
}

void ClientTable::resume() {
  for (const auto& [id, client] : sessions_) {
    loop_.in_turn_of(client.user, [this, number = id] {
      if (Session* session = find(number)) session->resume();
      return false;
    });
  }
}

Session* ClientTable::find(uint64_t id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.session.get();
}

}  // namespace verbena::agent
