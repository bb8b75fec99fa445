// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "base/time.h"
#include "management/cm/events.h"

namespace verbena::agent {

class CmClient;
class CmService;

// Remembers for a second the ports on which running programs have stopped listening. Requests to such a port
// wait up to a second before they are refused. The program may soon listen on the port again, perhaps in
// another port space.
//
// The reason is perftest's option -R. The server exchanges parameters over a first connection, then ends the
// listener of that connection. Next it listens again on the same port, for UD in another port space. The
// client connects without waiting for this second listener, and may be far ahead if the server gets no
// processor. A refused client does not retry; up to version 4.5-0.17 it uses freed memory. For the agent's
// thread.
class EndedListeners {
 public:
  static constexpr Duration kRemembered = std::chrono::seconds(1);
  static constexpr size_t kMax = 64;  // maximum number of ports; a further one replaces the oldest

  // Adds a port on which the client has stopped listening. REQUIRES: `now` never decreases
  void add(const CmClient& client, uint16_t port, TimePoint now);
  // Returns whether a running program stopped listening on the port less than kRemembered ago.
  bool has(uint16_t port, TimePoint now) const;
  // Removes the ports of this client, whose program has ended: it will not listen there again.
  void forget(const CmClient& client);

 private:
  struct Listener {
    const CmClient* client;  // only for comparison: may be dangling
    uint16_t port;
    TimePoint ended;
  };

  std::deque<Listener> listeners_;  // in the order of their end
};

// Ends the connections of QPs in a slot whose lease has ended. The slot's next owner has QPs with the same
// numbers. Peers that still know the old connections would refuse the new owner's connections. Works in
// steps, in turns of the slot's last user (UserTurns). For the agent's thread.
class EndedSlots {
 public:
  // REQUIRES: service outlives this object
  explicit EndedSlots(CmService& service) : service_(service) {}
  EndedSlots(const EndedSlots&) = delete;
  EndedSlots& operator=(const EndedSlots&) = delete;

  // Starts to end the connections that programs of `user` have with QPs in the slot. Their peers get a
  // message, and their programs an event.
  void end(uint32_t slot, uid_t user);
  // Returns whether the slot may be leased again. Returns false until end() has handled all connections of
  // the slot. With `to_another_user`, also returns false while the connection manager still has a connection
  // with a QP in the slot.
  bool may_be_leased(uint32_t slot, bool to_another_user) const;

 private:
  // The position at which end_some() continues.
  struct Ending {
    uid_t user;
    uint32_t qpn;
    cm::LocalId id;
  };
  // Handles up to 64 connections. Returns false if none are left.
  bool end_some(uint32_t slot);
  void end_one(cm::LocalId id, uint64_t context, uid_t user);

  CmService& service_;
  std::map<uint32_t, Ending> endings_;  // by slot
};

// Destroys the identifiers, channels and events of clients whose programs have ended. A program may leave
// 131,072 identifiers, and destroying them takes long. So they are destroyed in steps, each in a turn of the
// program's user (UserTurns). Other clients do not notice: the ports count as free (PortOwner). For the
// agent's thread.
class GoneClients {
 public:
  // Number of identifiers, channels and queued events that are destroyed in one step.
  static constexpr size_t kAtOnce = 256;

  // REQUIRES: loop outlives this object
  explicit GoneClients(EventLoop& loop);
  ~GoneClients();

  // Calls client->go(), and destroys the client in steps. If it has fewer than kAtOnce items (identifiers,
  // channels and queued events), it is destroyed before this returns.
  void add(std::unique_ptr<CmClient> client);
  bool empty() const { return users_.empty(); }
  // Destroys up to kAtOnce items (identifiers, channels and queued events) that the user's ended programs
  // have left. Called when the user has reached a limit. Returns false if there was nothing to destroy.
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

  EventLoop& loop_;
  std::map<uid_t, OfUser> users_;  // only users with clients
};

}  // namespace verbena::agent
