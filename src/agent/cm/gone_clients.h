// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include <sys/types.h>

#include "agent/event_loop.h"

namespace verbena::agent {

class CmClient;

// Clients of connection management whose programs have ended, or have closed an event channel with many
// identifiers, which are a client of their own from then on. A program may have had 131,072 identifiers, and
// to destroy those takes long; so it is done little by little, and others have their turn in between. To them
// it is as if all were gone at once (PortOwner). Of the agent's thread.
class GoneClients {
 public:
  // Of identifiers, channels and events, in one round of the loop.
  static constexpr size_t kAtOnce = 256;

  // REQUIRES: loop outlives this
  explicit GoneClients(EventLoop& loop);
  ~GoneClients();
  GoneClients(const GoneClients&) = delete;
  GoneClients& operator=(const GoneClients&) = delete;

  // One that has little is done with when this returns.
  void add(std::unique_ptr<CmClient> client);
  bool empty() const { return clients_.empty(); }
  // The user wants more than it may have beside what its programs have left: a part of that is cleared now.
  // False: they have left nothing.
  bool clear_some_of(uid_t user);
  void clear_all();

 private:
  using Clients = std::list<std::unique_ptr<CmClient>>;

  void clear_some(Clients::iterator client);
  void go_on();

  EventLoop& loop_;
  Clients clients_;
  bool goes_on_ = false;  // in the loop's next round
};

}  // namespace verbena::agent
