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

// Takes over from an agent that died: waits a moment for one of its clients to bring the vault, and takes out
// what lies there.
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
  // `on_settled`: what we have is known, or is other than before.
  Takeover(Subjects subjects, std::function<void()> on_settled);

  // Waits, where the port is held by sockets of our own user.
  void begin();
  // False while a client of the former agent may still bring its vault: the others wait.
  bool is_settled() const { return !waiting_; }
  // REQUIRES: it is of a process of our own user
  void offer_vault(UniqueFd vault);
  // A client has been told what there is: from now on it must stay so.
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
