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

// Ports and connections that clients of a former agent held, by its ledger. Until they reconnect or 30
// seconds have passed, each port is reserved for its user, and each connection may be restored once by its
// user. A former agent of an older release leaves no ledger. Then users may restore connections without proof
// for the same time, up to kMaxWithoutLedger each, if they hold the QP. For the agent's thread.
class Claims {
 public:
  using Spaces = std::map<uint16_t, PortSpace>;
  // Maximum number of connections that a user may restore without a ledger.
  static constexpr size_t kMaxWithoutLedger = 16384;

  // Adds claims to this agent's ledger, so that they remain valid if this agent dies, too. REQUIRES: both
  // outlive this object
  Claims(Spaces& spaces, Ledger& ledger) : spaces_(spaces), ledger_(ledger) {}
  ~Claims() { release_ports(); }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  // Adds the claims in the ledger of a former agent.
  void take_over(std::span<const LedgerEntry> entries, TimePoint until);
  void take_over_without_ledger(TimePoint until);
  // Whether programs of a former agent may still reclaim their ports and connections.
  bool hold(TimePoint now) const { return now < until_; }
  TimePoint until() const { return until_; }

  // Releases the user's claims that conflict with the port to which the user binds now.
  void yield_port(uint16_t port_space, const PortBinding& to, uid_t user);
  // Whether the user had this connection with the former agent and has not restored it yet. `is_awaited`: the
  // process with its QP has not reconnected yet, so the claim has not expired. Sets
  // connection.peer_has_roce_port, which the program does not decide.
  bool take_connection(cm::ConnectionInfo& connection, uid_t user, bool is_awaited, TimePoint now);
  // Ends the claims, except connections whose process lives but has not reconnected (it may be stopped).
  // Returns whether there are any such connections.
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
  std::list<Port> ports_;                                 // each holds its port in its port space
  std::unordered_map<uint32_t, Connection> connections_;  // by the own communication ID
  std::map<uid_t, size_t> believed_;                      // connections restored without a ledger
};

}  // namespace verbena::agent
