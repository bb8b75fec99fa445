// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <unordered_map>

#include <sys/types.h>

#include "agent/cm/ledger.h"
#include "agent/cm/port_space.h"
#include "base/time.h"
#include "management/cm/parameters.h"

namespace verbena::agent {

// What the programs of a former agent had, as its ledger says, until they come back for it or the time is
// over: a port is kept for the user who held it, and a connection is believed to the user who had it, once.
// What an agent without a ledger leaves (one of a former release) is believed for the same time on the word
// of who holds the QP, so many connections to a user. Of the agent's thread.
class Claims {
 public:
  using Spaces = std::map<uint16_t, PortSpace>;
  // Connections of a user that are believed where there is no ledger.
  static constexpr size_t kMaxWithoutLedger = 16384;

  // Claims are entered into the ledger: should this agent die, too, they hold with the next one.
  // REQUIRES: both outlive this
  Claims(Spaces& spaces, Ledger& ledger) : spaces_(spaces), ledger_(ledger) {}
  ~Claims() { release_ports(); }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  // A former agent has left this.
  void take_over(std::span<const LedgerEntry> entries, TimePoint until);
  void take_over_without_ledger(TimePoint until);
  // Whether programs of a former agent may come back for what they had.
  bool hold(TimePoint now) const { return now < until_; }
  TimePoint until() const { return until_; }

  // The user binds to this port: what would be in its way of the user's own is not.
  void yield_port(uint16_t port_space, const PortBinding& to, uid_t user);
  // Whether the user had this connection with the former agent, and has not brought it back before.
  // `is_awaited`: the process that has its QP has not come back yet, so the time is not over. Adds to
  // `connection` what its program is not asked: peer_has_roce_port.
  bool take_connection(cm::ConnectionInfo& connection, uid_t user, bool is_awaited, TimePoint now);
  // The time is over. Connections whose process has not come back, but lives (it may have been stopped), are
  // still believed; whether there are such.
  bool end(const std::function<bool(uint32_t qpn)>& is_awaited);

 private:
  struct Port : PortBinding {
    uint16_t space = 0;
    Ledger::Number number = 0;
  };
  struct Connection {
    LedgerEntry entry;
    Ledger::Number number = 0;
  };

  void keep_port(const LedgerEntry& entry);
  void release_ports();

  Spaces& spaces_;
  Ledger& ledger_;
  TimePoint until_{};
  bool without_ledger_ = false;
  std::list<Port> ports_;                                 // each is held in its port space
  std::unordered_map<uint32_t, Connection> connections_;  // by our communication ID
  std::map<uid_t, size_t> believed_;                      // without a ledger
};

}  // namespace verbena::agent
