// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/model/link.h"

namespace verbena::agent {

class ClientEvents;
class ConnectionTrace;
class Session;
struct LeasedSlot;

// Connects the parts of the agent. A part calls this to report events that concern other parts, and to ask
// what other parts know. Class Agent implements it. The default implementations answer as if there were no
// other parts. For the agent's thread.
class AgentHost {
 public:
  virtual ~AgentHost() = default;

  // ---- questions
  // Returns the event socket of a session, or nullptr if there is no such session.
  virtual ClientEvents* events_of(uint64_t) { return nullptr; }
  // Returns whether a client of a former agent still runs and has not reconnected yet.
  virtual bool awaits_programs() const { return false; }
  // Returns whether the process that had this QP with a former agent lives and has not reconnected yet.
  virtual bool is_orphan(uint32_t) const { return false; }
  // Returns why the UDP port is not open, or an empty string if it is open.
  virtual std::string no_wire_reason() const { return {}; }
  // Returns whether packets leave the netdev without a neighbour's hardware address.
  virtual bool needs_no_neighbours(uint32_t interface_index) const {
    static_cast<void>(interface_index);
    return false;
  }

  // ---- events
  // Called when a session was created, when its hello has been answered, and when it was destroyed.
  virtual void session_came(uint64_t) {}
  virtual void session_greeted(const Session&) {}
  virtual void session_went(uint64_t) {}
  // Makes the owner of the session destroy it later, in a turn of the session's user (UserTurns).
  virtual void close_session(uint64_t) {}
  // Called after each new link table file. `before` has the links of the previous file.
  virtual void links_changed(const std::vector<control::Link>& before) { static_cast<void>(before); }
  // Called when the agent has bound UDP port 4791, which was taken until now.
  virtual void wire_opened() {}
  // Called when the slot was leased, reclaimed or taken back.
  virtual void slot_changed(uint32_t) {}
  // Called before the slot is taken back. `in_order` is true if the process gave the slot back, false if the
  // process ended without doing so.
  virtual void lease_ending(const LeasedSlot&, bool in_order) { static_cast<void>(in_order); }
  // Called when slots were taken back.
  virtual void slots_returned() {}
  // Called when an orphan has reconnected and reclaimed its slot.
  virtual void orphan_returned() {}
  // Called when the first port or connection of a user other than the agent's own is recorded in the ledger,
  // and when the last one is removed.
  virtual void others_changed() {}
  // Called when a trace with events ends: its client has gone and has no identifiers left.
  virtual void trace_ended(const ConnectionTrace&) {}
  // Called when a reason for the agent not to end may have appeared or gone.
  virtual void consider_idle() {}
};

}  // namespace verbena::agent
