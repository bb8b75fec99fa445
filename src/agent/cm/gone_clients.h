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

// Clients of connection management whose programs have ended. A program may have had 131,072 identifiers, and
// to destroy those takes long; so it is done little by little, in turns of their user. To others it is as if
// all were gone at once (PortOwner). For the agent's thread.
class GoneClients {
 public:
  // One piece of a user's turn clears so many identifiers, channels and events.
  static constexpr size_t kAtOnce = 256;

  // REQUIRES: loop outlives this
  explicit GoneClients(EventLoop& loop);
  ~GoneClients();
  GoneClients(const GoneClients&) = delete;
  GoneClients& operator=(const GoneClients&) = delete;

  // One that has little is done with when this returns.
  void add(std::unique_ptr<CmClient> client);
  bool empty() const { return users_.empty(); }
  // The user wants more than it may have beside what its programs have left: a part of that is cleared now.
  // False: they have left nothing.
  bool clear_some_of(uid_t user);
  void clear_all();

 private:
  struct OfUser {
    std::list<std::unique_ptr<CmClient>> clients;
    bool goes_on = false;  // in the user's next turn
  };

  // Clears a part of the user's first client. The client is gone when that was the rest.
  void clear_some(uid_t user);
  void go_on(uid_t user);

  EventLoop& loop_;
  std::map<uid_t, OfUser> users_;  // none without clients
};

}  // namespace verbena::agent
