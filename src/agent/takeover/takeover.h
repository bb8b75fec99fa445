// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/links/link_table.h"
#include "agent/sessions/served_users.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/wire.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Takes over from an agent that died: waits up to 300 ms for one of its clients to send the takeover state,
// then adopts the slots, links and connections in it.
class Takeover {
 public:
  struct Subjects {
    EventLoop& loop;
    Wire& wire;
    SlotLeases& slots;
    LinkTable& links;
    CmService& connection_management;
    ServedUsers& served;
  };
  // `on_settled`: called when the takeover is complete or there is none, and again after a later one.
  Takeover(Subjects subjects, std::function<void()> on_settled);

  // Waits for the takeover state if sockets of the agent's own user hold the port.
  void begin();
  // False while a client of the former agent may still send its takeover state: other clients wait.
  bool is_settled() const { return !waiting_; }
  // Adopts a crashed agent's state (slots, sockets, links, connections) from a client's copy of the takeover
  // state. REQUIRES: the client has the agent's UID
  void offer_state(UniqueFd takeover_state);
  // Notes that a client has been told the current links and slots, which must not change from now on.
  void greeted() { has_greeted_ = true; }

 private:
  void hear_the_last();
  void give_up_waiting();
  void settle();

  const Subjects of_;
  const std::function<void()> on_settled_;
  bool waiting_ = false;
  bool has_greeted_ = false;
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace verbena::agent
