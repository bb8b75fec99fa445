// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>

#include <sys/types.h>

#include "agent/event_loop.h"

namespace verbena::agent {

class CmClient;

// Clients of connection management whose programs have ended. A program may leave 131,072 identifiers, and
// destroying them takes long. So it is done in steps, each in a turn of the program's user (UserTurns). For
// other clients, the identifiers are gone at once: their ports count as free (PortOwner).
//
// For the agent's thread.
class GoneClients {
 public:
  // Number of identifiers, channels and events that are cleared in one piece of a user's turn.
  static constexpr size_t kAtOnce = 256;

  // REQUIRES: loop outlives this object
  explicit GoneClients(EventLoop& loop);
  ~GoneClients();
  GoneClients(const GoneClients&) = delete;
  GoneClients& operator=(const GoneClients&) = delete;

  // Adds a client. One that has less than kAtOnce is destroyed before this returns.
  void add(std::unique_ptr<CmClient> client);
  bool empty() const { return users_.empty(); }
  // Clears some of what the user's ended programs have left, because the user needs room. False: there is
  // nothing left.
  bool clear_some_of(uid_t user);
  void clear_all();

 private:
  struct OfUser {
    std::list<std::unique_ptr<CmClient>> clients;
    bool goes_on = false;  // queued for the user's turns
  };

  // Clears a part of the user's first client, and destroys the client if nothing is left.
  void clear_some(uid_t user);
  void go_on(uid_t user);

  EventLoop& loop_;
  std::map<uid_t, OfUser> users_;  // only users with clients
};

}  // namespace verbena::agent
