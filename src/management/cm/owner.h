// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "management/cm/connection.h"
#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/events.h"
#include "management/cm/manager_config.h"
#include "management/cm/sender.h"

namespace verbena::cm {

// The roles' interface to the owner of the connections (Handler): asks it about new requests and passes
// events to it. One thread.
class Owner {
 public:
  // REQUIRES: all parameters outlive this object
  Owner(const ManagerConfig& config, Handler& handler, ConnectionTable& table, Counters& counters)
      : config_(config), handler_(handler), table_(table), counters_(counters) {}

  // Asks the handler about a REQ or SIDR_REQ that is no duplicate. Counts requests that are ignored. Ignores
  // requests beyond max_half_open without asking.
  template <class Request>
  Admission admit(const Request& request, const Incoming& incoming) {
    if (table_.half_open() >= config_.max_half_open) {
      ++counters_.of(DropReason::kTooManyHalfOpen);
      return Admission::ignore();
    }
    const Admission admission = handler_.admit(request, incoming.arrival);
    if (admission.verdict == Admission::kIgnore) ++counters_.of(DropReason::kNotAdmitted);
    if (admission.verdict == Admission::kWait) incoming.disposal = Disposal::kKeep;
    return admission;
  }

  // Whether an unknown connection may still be restored (Handler::may_return()). If so, the caller must not
  // tell the peer that the connection is gone.
  bool may_restore(uint32_t qpn, const Incoming& incoming) {
    const Handler::Return verdict = handler_.may_return(qpn, incoming.arrival);
    if (verdict == Handler::Return::kWait) incoming.disposal = Disposal::kKeep;
    return verdict != Handler::Return::kNever;
  }

  // Passes an event of a connection to the handler. For a destroyed connection calls no handler, but deletes
  // the connection if nothing is left to do. Since the handler may call back, this is the last action for a
  // datagram or timer.
  template <class... Wanted, class... Given>
  void tell(Connection& connection, void (Handler::*event)(LocalId, uint64_t, Wanted...), Given&&... about) {
    if (connection.has_owner) {
      (handler_.*event)(connection.info.local_id, connection.info.context, std::forward<Given>(about)...);
    } else {
      table_.release_if_done(connection);
    }
  }

 private:
  const ManagerConfig& config_;
  Handler& handler_;
  ConnectionTable& table_;
  Counters& counters_;
};

}  // namespace verbena::cm
