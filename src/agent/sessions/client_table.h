// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <sys/socket.h>
#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/sessions/client_sockets.h"
#include "agent/sessions/session.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Lets clients in, as many as there is room for, and has their sessions until they end.
class ClientTable {
 public:
  struct Surroundings {
    std::function<std::unique_ptr<Session>(uint64_t id, UniqueFd socket, const ucred& peer)> make_session;
    std::function<void(uint64_t id)> on_come;  // it was made
    std::function<void(uint64_t id)> on_go;    // it is gone
  };
  static constexpr size_t kDescriptorsOfClient = 3;
  // How many clients an agent takes that may open so many descriptors (RLIMIT_NOFILE). Clients may use half
  // of the descriptors. Slots and the vault use what the other tables leave of the rest
  // (descriptors_test.cc).
  static Quota::Size room_with(size_t descriptors);
  // `room`: for sessions
  ClientTable(EventLoop& loop, ClientSockets& sockets, Quota::Size room, Surroundings surroundings);

  // From now on clients come by these sockets, which have the agent's names.
  Result<void> listen(std::vector<UniqueFd> names);
  // Takes no clients any more.
  void stop_listening() { listeners_.clear(); }
  // Takes the next one in; its session begins in a turn of its user. False: there is none.
  bool accept_one();
  // The session is destroyed, in a turn of its user.
  void close(uint64_t id);
  // First the name is free, then clients see their connection end.
  void clear();

  Session* find(uint64_t id) const;
  // Those that are about to begin are counted.
  size_t size() const { return sessions_.size() + coming_.size(); }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [id, client] : sessions_) visit(*client.session);
  }

 private:
  struct Coming {
    UniqueFd socket;
    ucred peer;
  };
  struct Client {
    uid_t user;
    std::unique_ptr<Session> session;
  };

  void accept_some();
  void begin(uint64_t id);
  bool accept_from(int listener);
  bool is_of_our_network(int socket, const ucred& peer) const;
  bool has_room_for(int socket, const ucred& peer) const;
  void end(uint64_t id);
  void pause();

  EventLoop& loop_;
  ClientSockets& sockets_;
  const Surroundings surroundings_;
  std::vector<UniqueFd> listeners_;
  size_t next_listener_ = 0;        // is asked first
  uint64_t network_namespace_ = 0;  // 0: the kernel does not say
  Quota quota_;
  uint64_t next_ = 1;
  std::map<uint64_t, Coming> coming_;  // let in, without a session yet
  std::map<uint64_t, Client> sessions_;
};

}  // namespace verbena::agent
