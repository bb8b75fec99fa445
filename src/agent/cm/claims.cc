// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/claims.h"

#include <algorithm>
#include <cstring>

namespace verbena::agent {
namespace {

// Whether two bindings of one port conflict.
bool meet(const PortBinding& a, const PortBinding& b) {
  const auto overlap = [](const CmAddress& x, const CmAddress& y) {
    return !has_known_family(x) || !has_known_family(y) || is_any_address(x) || is_any_address(y) ||
           is_same_host(x, y);
  };
  const bool other_port =
      a.destination.port != 0 && b.destination.port != 0 && a.destination.port != b.destination.port;
  return !other_port && overlap(a.source, b.source) && overlap(a.destination, b.destination);
}

}  // namespace

void Claims::take_over(std::span<const LedgerEntry> entries, TimePoint until) {
  until_ = std::max(until_, until);
  for (const LedgerEntry& entry : entries) {
    if (entry.kind == LedgerEntry::kPort) {
      keep_port(entry);
    } else if (entry.local_id != 0 && !connections_.contains(entry.local_id)) {
      connections_[entry.local_id] = {entry, ledger_.add(entry)};
    }
  }
}

void Claims::take_over_without_ledger(TimePoint until) {
  until_ = std::max(until_, until);
  without_ledger_ = true;
}

void Claims::keep_port(const LedgerEntry& entry) {
  const auto space = spaces_.find(entry.port_space);
  const bool is_sane = space != spaces_.end() && has_known_family(entry.source) && entry.source.port != 0 &&
                       (entry.destination.family == 0 || has_known_family(entry.destination));
  if (!is_sane) return;
  Port& port = ports_.emplace_back();
  port.source = entry.source;
  port.destination = entry.destination;
  port.reuse_address = (entry.flags & LedgerEntry::kSharesAddress) != 0;
  port.own_family_only = (entry.flags & LedgerEntry::kOneFamily) != 0;
  port.space = entry.port_space;
  port.user = entry.user;
  if (space->second.resume(port)) {
    port.number = ledger_.add(entry);
  } else {
    ports_.pop_back();
  }
}

void Claims::yield_port(uint16_t port_space, const PortBinding& to, uid_t user) {
  for (auto port = ports_.begin(); port != ports_.end();) {
    const bool yields = port->user == user && port->space == port_space &&
                        port->source.port == to.source.port && meet(*port, to);
    if (!yields) {
      ++port;
      continue;
    }
    spaces_.at(port->space).release(*port);
    ledger_.remove(port->number);
    port = ports_.erase(port);
  }
}

bool Claims::take_connection(cm::ConnectionInfo& connection, uid_t user, bool is_awaited, TimePoint now) {
  if (!hold(now) && !is_awaited) return false;
  if (without_ledger_) return ++believed_[user] <= kMaxWithoutLedger;
  const auto found = connections_.find(connection.local_id);
  if (found == connections_.end()) return false;
  const LedgerEntry& entry = found->second.entry;
  const bool is_it =
      entry.user == user && entry.remote_id == connection.remote_id &&
      entry.local_qpn == connection.local_qpn &&
      std::memcmp(entry.peer, connection.path.destination.bytes.data(), sizeof entry.peer) == 0;
  if (!is_it) return false;
  connection.peer_has_roce_port = (entry.flags & LedgerEntry::kPeerHasRocePort) != 0;
  ledger_.remove(found->second.number);
  connections_.erase(found);
  return true;
}

bool Claims::end(const std::function<bool(uint32_t qpn)>& is_awaited) {
  release_ports();
  std::erase_if(connections_, [&](const auto& each) {
    const Connection& connection = each.second;
    if (is_awaited(connection.entry.local_qpn)) return false;
    ledger_.remove(connection.number);
    return true;
  });
  return !connections_.empty();
}

void Claims::release_ports() {
  for (Port& port : ports_) {
    spaces_.at(port.space).release(port);
    ledger_.remove(port.number);
  }
  ports_.clear();
}

}  // namespace verbena::agent
