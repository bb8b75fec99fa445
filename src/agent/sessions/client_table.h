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

#include "agent/agent_host.h"
#include "agent/event_loop.h"
#include "agent/sessions/client_sockets.h"
#include "agent/sessions/session.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Accepts clients within each user's quota, and owns their sessions until they end.
class ClientTable {
 public:
  using MakeSession = std::function<std::unique_ptr<Session>(uint64_t id, UniqueFd socket, const ucred& peer,
                                                             QuotaShare share)>;
  // Descriptors that the agent needs for one client: two sockets and a pidfd.
  static constexpr size_t kDescriptorsOfClient = 3;
  // Returns the quota of clients for an agent whose RLIMIT_NOFILE is `descriptors`: at most 8,192. Clients
  // may use 15/32 of the descriptors. The rest is for other tables, slots and the takeover state
  // (descriptors_test.cc).
  static Quota::Size room_with(size_t descriptors);
  // `room`: maximum number of sessions
  ClientTable(EventLoop& loop, ClientSockets& sockets, Quota::Size room, AgentHost& agent,
              MakeSession make_session);

  // Starts to listen on these sockets, which are bound to the agent's names.
  Result<void> listen(std::vector<UniqueFd> names);
  // Records that no client needs to send a takeover state with its hello any more. From then on, the
  // listening sockets may be set to refuse descriptors (SO_PASSRIGHTS, Linux 6.16) from clients that have no
  // session yet. This is done when the first client is refused whose user may have no more descriptors open
  // in the agent. It is not done earlier, because libraries from before November 2026 send an unneeded
  // takeover state, and would take the refusal for an error.
  void expect_no_early_descriptors() { expects_early_descriptors_ = false; }
  // Stops accepting clients. The agent's own listening sockets refuse connections from then on; that of a
  // service manager stays as it is. Never waits. Threads close the sockets, because a close may take as long
  // as a waiting client likes: it also closes the descriptors that the client has sent.
  void stop_listening();
  // Accepts or refuses the next client. An accepted client's session starts in a turn of its user
  // (UserTurns). Returns false if no client is waiting, if the agent has no descriptors left for one, or if
  // too many refused clients wait to be disconnected.
  bool accept_one();
  // Accepts or refuses up to 16 clients. Returns false if none was waiting.
  bool accept_some();
  // Destroys the session later, in a turn of its user.
  void close(uint64_t id);
  // Closes the listening sockets first, and then all connections. So a client whose connection closes finds
  // the agent's name free. Called when the agent ends.
  void clear();

  // Called when the takeover has ended. Each session whose client's hello had to wait for that answers it, in
  // a turn of its user (Session::resume()).
  void resume();

  Session* find(uint64_t id) const;
  // Returns the number of clients, including those whose session has not started.
  size_t size() const { return sessions_.size() + coming_.size(); }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [id, client] : sessions_) visit(*client.session);
  }

 private:
  struct Listener {
    UniqueFd socket;
    bool is_passed;  // by a service manager, which goes on listening
  };
  struct Coming {
    UniqueFd socket;
    ucred peer;
    QuotaShare share;
  };
  struct Client {
    uid_t user;
    std::unique_ptr<Session> session;
  };

  void begin(uint64_t id);
  bool accept_from(int listener);
  bool is_of_our_network(int socket, const ucred& peer) const;
  bool has_room_for(int socket, const ucred& peer) const;
  // Returns false if no other client may be accepted for now.
  bool refuse(uid_t user, UniqueFd socket);
  void end(uint64_t id);
  void pause(Duration time);

  EventLoop& loop_;
  ClientSockets& sockets_;
  AgentHost& agent_;
  const MakeSession make_session_;
  std::vector<Listener> listeners_;
  bool expects_early_descriptors_ = true;
  size_t next_listener_ = 0;            // index of the next listener to accept from
  uint64_t network_namespace_ = 0;      // 0: not supported by the kernel
  const std::shared_ptr<Quota> quota_;  // counts sessions until their descriptors are closed
  uint64_t next_ = 1;
  std::map<uint64_t, Coming> coming_;  // accepted, without a session yet
  std::map<uint64_t, Client> sessions_;
};

}  // namespace verbena::agent
