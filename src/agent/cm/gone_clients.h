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

// Destroys the identifiers, channels and events of clients whose programs have ended. A program may leave
// 131,072 identifiers, and destroying them takes long. So they are destroyed in steps, each in a turn of the
// program's user (UserTurns). Other clients do not notice: the ports count as free (PortOwner).
//
// For the agent's thread.
class GoneClients {
 public:
  // Number of identifiers, channels and queued events that are destroyed in one step.
  static constexpr size_t kAtOnce = 256;

  // REQUIRES: loop outlives this object
  explicit GoneClients(EventLoop& loop);
  ~GoneClients();
  GoneClients(const GoneClients&) = delete;
  GoneClients& operator=(const GoneClients&) = delete;

  // Calls client->go(). Destroys the client before returning if it has fewer than kAtOnce items.
  void add(std::unique_ptr<CmClient> client);
  bool empty() const { return users_.empty(); }
  // Destroys up to kAtOnce items that the user's ended programs have left. Called when the user has reached a
  // limit. Returns false if there was nothing to destroy.
  bool clear_some_of(uid_t user);
  // Destroys all clients at once. Called when the agent ends.
  void clear_all();

 private:
  struct OfUser {
    std::list<std::unique_ptr<CmClient>> clients;
    bool goes_on = false;  // queued for the user's turns
  };

  // Destroys up to kAtOnce items of the user's first client, and destroys the client if nothing is left.
  void clear_some(uid_t user);
  void go_on(uid_t user);

  EventLoop& loop_;
  std::map<uid_t, OfUser> users_;  // only users with clients
};

}  // namespace verbena::agent
