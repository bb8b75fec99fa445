// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/links/link_table.h"
#include "agent/sessions/client_files.h"
#include "agent/sessions/served_users.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/takeover/takeover_state.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/model/link.h"

namespace verbena::agent {

// Writes the slots, links and connections of this agent to its takeover state, from which the next agent
// restores them if this one is killed. Failures to write are logged.
class TakeoverRecord {
 public:
  // REQUIRES: the references outlive this object
  TakeoverRecord(const SlotTable& slots, const ServedUsers& served, ForeignCloser& closer)
      : slots_(slots), served_(served), closer_(closer) {}

  Result<void> create();
  // Returns the receiving end of the takeover state, a copy of which is sent to clients of the agent's own
  // user.
  int client_end() const { return takeover_state_.client_end(); }

  void put_slot(uint32_t index);
  // Keeps copies of the slot's descriptors until rewrite() removes the messages that contain them. The last
  // close of such a descriptor may take as long as the slot's user likes. So rewrite() closes the copies on
  // that user's thread (ForeignCloser). Called when the slot's lease ends.
  void lease_ending(const LeasedSlot& ending);
  // Appends the link table, in a file that no client gets. If clients had the file, they could delay the next
  // agent's reads of it (madvise(2), MADV_COLLAPSE).
  void put_links(const control::LinkSnapshot& links);
  // Appends the file in which the connection manager records its connections (cm/ledger.h). REQUIRES: the
  // ledger stays open as long as this object, and remains the same file
  void put_ledger(int ledger);
  // Appends the complete current state, then removes all older messages.
  void rewrite();

 private:
  struct Former {
    uid_t user;
    UniqueFd fd;
    QuotaShare share;  // of the lease
  };

  const SlotTable& slots_;
  const ServedUsers& served_;
  ForeignCloser& closer_;
  TakeoverState takeover_state_;
  std::vector<Former> former_;  // copies for ended leases, whose messages may still be in the takeover state
  UniqueFd link_file_;
  int ledger_ = -1;
};

// Takes over from a killed agent. Waits 300 ms for one of that agent's clients to send the takeover state,
// and longer for clients that have connected by then. Adopts the slots, links and connections in that state.
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
  // Calls `on_settled` when the takeover is complete or there is nothing to take over, and again if a client
  // sends a takeover state later.
  Takeover(Subjects subjects, std::function<void()> on_settled);

  // Starts to wait for the takeover state if a killed agent may have left sockets of the port to its clients
  // (Wire::may_be_ours()). Otherwise calls `on_settled` at once.
  void begin();
  // Returns false while a client of the former agent may still send the takeover state. Other clients get no
  // answer until then.
  bool is_settled() const { return !waiting_; }
  // Adopts a killed agent's slots, sockets, links and connections. `takeover_state` is the receiving end that
  // a client has kept; its messages are consumed. Ignored if is_over(): this agent has bound UDP port 4791
  // itself, or adopted it earlier, and has begun to serve clients. REQUIRES: the client has the agent's UID
  void offer_state(UniqueFd takeover_state);
  // Records that a client has been sent the current links. From now on offer_state() does not replace them.
  void greeted() { has_greeted_ = true; }
  // Returns whether offer_state() ignores every takeover state from now on.
  bool is_over() const { return of_.wire.has_sockets() && !waiting_ && has_greeted_; }

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
