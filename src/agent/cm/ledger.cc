// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/ledger.h"

#include "base/log.h"
#include "base/sealed_file.h"

namespace verbena::agent {

namespace {

// Takes the place of entry 0.
struct LedgerHeader {
  uint32_t magic = 0x7267646c;  // "ldgr"
  uint32_t version = 1;
  uint32_t entry_bytes = sizeof(LedgerEntry);
  uint8_t reserved[116] = {};
};
static_assert(sizeof(LedgerHeader) == sizeof(LedgerEntry));

off_t place_of(Ledger::Number number) {
  return static_cast<off_t>(number) * static_cast<off_t>(sizeof(LedgerEntry));
}

}  // namespace

Ledger::Ledger(std::function<void()> on_others)
    : file_(make_private_file("verbena-ledger", 0).value_or(UniqueFd())),
      on_others_(std::move(on_others)),
      own_(::geteuid()),
      quota_(Quota::Size::of(kMax), own_) {
  const LedgerHeader header;
  if (file_ && ::pwrite(file_.get(), &header, sizeof header, 0) != sizeof header) file_.reset();
  if (!file_) log_warning("ports would not survive the agent's end: no ledger can be made: errno {}", errno);
}

// Writes by a system call: if memory is short, that fails instead of killing the agent.
bool Ledger::write(Number number, const LedgerEntry& entry) {
  return ::pwrite(file_.get(), &entry, sizeof entry, place_of(number)) == sizeof entry;
}

Ledger::Number Ledger::add(const LedgerEntry& entry) {
  if (!file_ || frozen_ || !quota_.allows(entry.user)) return 0;
  const bool is_new = free_.empty();
  const Number number = is_new ? static_cast<Number>(users_.size()) : free_.back();
  if (!write(number, entry)) return 0;
  if (is_new) {
    users_.push_back(entry.user);
  } else {
    free_.pop_back();
    users_[number] = entry.user;
  }
  quota_.take(entry.user);
  count(entry.user, 1);
  return number;
}

void Ledger::change(Number number, const LedgerEntry& entry) {
  if (number != 0 && !frozen_) [[maybe_unused]]
    const bool written = write(number, entry);
}

void Ledger::remove(Number number) {
  if (number == 0 || frozen_) return;
  // The page exists already, so this does not fail.
  [[maybe_unused]] const bool written = write(number, {});
  quota_.give_back(users_[number]);
  free_.push_back(number);
  count(users_[number], -1);
}

void Ledger::count(uint32_t user, int by) {
  if (user == own_) return;
  const bool before = others_ > 0;
  others_ += static_cast<size_t>(by);
  if (before != (others_ > 0)) on_others_();
}

std::vector<LedgerEntry> Ledger::read(int file) {
  std::vector<LedgerEntry> entries;
  LedgerHeader header{};
  const LedgerHeader expected;
  if (::pread(file, &header, sizeof header, 0) != sizeof header) return entries;
  if (std::memcmp(&header, &expected, sizeof header) != 0) return entries;
  constexpr size_t kAtOnce = 512;
  std::vector<LedgerEntry> read(kAtOnce);
  for (Number number = 1; number <= kMax; number += kAtOnce) {
    const ssize_t bytes = ::pread(file, read.data(), kAtOnce * sizeof(LedgerEntry), place_of(number));
    if (bytes <= 0) break;
    const auto end = read.begin() + bytes / static_cast<ssize_t>(sizeof(LedgerEntry));
    std::copy_if(read.begin(), end, std::back_inserter(entries), [](const LedgerEntry& entry) {
      return entry.kind == LedgerEntry::kPort || entry.kind == LedgerEntry::kConnection;
    });
  }
  return entries;
}

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
  if (space->second.resume(port, {}, PortSpace::Share::kGranted)) {
    port.number = ledger_.add(entry);
  } else {
    ports_.pop_back();
  }
}

bool Claims::yield_port(uint16_t port_space, const PortBinding& to, uid_t user) {
  const size_t before = ports_.size();
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
  return ports_.size() < before;
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
