// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "management/cm/connection.h"
#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/events.h"
#include "management/cm/manager_config.h"
#include "management/cm/receipt.h"

namespace verbena::cm {

// The owner of a manager's connections, as the roles see it: they ask it what to admit and tell it what
// happens. One thread.
class Owner {
 public:
  // REQUIRES: all of them outlive this
  Owner(const ManagerConfig& config, Handler& handler, ConnectionTable& table, Counters& counters)
      : config_(config), handler_(handler), table_(table), counters_(counters) {}

  // What becomes of a REQ or SIDR_REQ that nobody has answered before. What is to be ignored is counted.
  template <class Request>
  Admission admit(const Request& request, const ReceiverReport& receipt) {
    if (table_.half_open() >= config_.max_half_open) {
      ++counters_.of(DropReason::kTooManyHalfOpen);
      return Admission::ignore();
    }
    const Admission admission = handler_.admit(request, receipt.arrival);
    if (admission.verdict == Admission::kIgnore) ++counters_.of(DropReason::kNotAdmitted);
    if (admission.verdict == Admission::kWait) receipt.disposal = Disposal::kKeep;
    return admission;
  }

  // Whether a connection that is not here may still be restored. If so, its peer must not be told that there
  // is none.
  bool may_restore(uint32_t qpn, const ReceiverReport& receipt) {
    const Handler::Return verdict = handler_.may_return(qpn, receipt.arrival);
    if (verdict == Handler::Return::kWait) receipt.disposal = Disposal::kKeep;
    return verdict != Handler::Return::kNever;
  }

  // Tells what has happened to a connection, unless it was destroyed: then nobody wants to hear, and if
  // nothing is left to do, the connection is gone. As the handler may call back, this is the last thing that
  // is done about a datagram or a timer.
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
