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

// Reserves the ports and connections that clients of a former agent held, as listed in that agent's ledger.
// For 30 seconds, each port is reserved for its user, and each connection may be restored once by its user. A
// connection whose process lives but has not reconnected may be restored even later. A former agent of an
// older release leaves no ledger. Then users may restore connections without a ledger entry, up to
// kMaxWithoutLedger each, if the QP is theirs. For the agent's thread.
class Claims {
 public:
  using Spaces = std::map<uint16_t, PortSpace>;
  // Maximum number of connections that one user may restore without a ledger.
  static constexpr size_t kMaxWithoutLedger = 16384;

  // `ledger`: this agent's own ledger. Claims are added to it, so that they remain valid if this agent dies,
  // too. REQUIRES: spaces and ledger outlive this object
  Claims(Spaces& spaces, Ledger& ledger) : spaces_(spaces), ledger_(ledger) {}
  ~Claims() { release_ports(); }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  // Adds the ports and connections in a former agent's ledger as claims, valid up to `until`.
  void take_over(std::span<const LedgerEntry> entries, TimePoint until);
  // Permits restoring connections without a ledger entry, up to `until`.
  void take_over_without_ledger(TimePoint until);
  // Whether every client of a former agent may still reclaim its ports and connections: `now` is before
  // until(). Afterwards only connections of processes that have not reconnected can be restored.
  bool hold(TimePoint now) const { return now < until_; }
  TimePoint until() const { return until_; }

  // Releases the user's claims that conflict with `to`, the port to which the user is about to bind.
  void yield_port(uint16_t port_space, const PortBinding& to, uid_t user);
  // Checks that the user had this connection with the former agent, and removes the claim. Returns false if
  // the user has no such claim or the claim has expired. `is_awaited`: the process with the QP has not
  // reconnected yet, so the claim has not expired. Sets connection.peer_has_roce_port from the ledger,
  // because the program is not trusted to. Without a ledger, only checks time and kMaxWithoutLedger.
  bool take_connection(cm::ConnectionInfo& connection, uid_t user, bool is_awaited, TimePoint now);
  // Ends all claims except those to connections for which `is_awaited` returns true: their process lives but
  // has not reconnected (it may be stopped). Returns whether any claim is left.
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
  std::unordered_map<uint32_t, Connection> connections_;  // by local communication ID
  std::map<uid_t, size_t> believed_;  // by user: number of connections restored without a ledger
};

}  // namespace verbena::agent
