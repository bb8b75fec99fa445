// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

#include "agent/cm/port_space.h"
#include "base/quota.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/parameters.h"

namespace verbena::agent {

// A port that a user holds, or a connection, as the next agent reads it. A connection gets an entry when its
// program has accepted the peer's REQ or REP.
struct LedgerEntry {
  enum Kind : uint32_t { kFree = 0, kPort = 1, kConnection = 2 };
  static constexpr uint16_t kSharesAddress = 1;    // of kPort: RDMA_OPTION_ID_REUSEADDR
  static constexpr uint16_t kOneFamily = 2;        // of kPort: RDMA_OPTION_ID_AFONLY
  static constexpr uint16_t kPeerHasRocePort = 4;  // of kConnection: ConnectionInfo::peer_has_roce_port

  uint32_t kind = kFree;
  uint32_t user = 0;
  uint16_t port_space = 0;
  uint16_t flags = 0;
  uint32_t local_id = 0;  // kConnection only, as remote_id and local_qpn
  uint32_t remote_id = 0;
  uint32_t local_qpn = 0;
  protocol::CmAddress source{};  // kPort only, as destination
  protocol::CmAddress destination{};
  uint8_t peer[16] = {};  // kConnection only: the peer's GID
  uint8_t reserved[40] = {};
};
static_assert(sizeof(LedgerEntry) == 128 && std::is_trivially_copyable_v<LedgerEntry>);

// Records which user has which ports and connections, in a memfd that is part of the takeover state. So the
// next agent knows them before any client asks for them. An entry is written with one call and never crosses
// a page boundary: if the agent is killed, no entry is half written. For the agent's thread.
class Ledger {
 public:
  // The position of an entry in the file, counted from 1. 0 means that there is no entry.
  using Number = uint32_t;
  static constexpr Number kMax = 1048576;  // maximum number of entries

  // `on_others`: called when the first entry of a user other than the agent's own is added, and when the last
  // such entry is removed. If the file cannot be created, fd() is -1 and nothing is recorded.
  explicit Ledger(std::function<void()> on_others);

  int fd() const { return file_.get(); }
  // Adds an entry and returns its number. Returns 0 if the entry is not recorded: the quota of the user or of
  // all is used up, or freeze() was called. Also returns 0 if there is no file or the write failed.
  Number add(const LedgerEntry& entry);
  void change(Number number, const LedgerEntry& entry);
  void remove(Number number);
  bool has_others() const { return others_ > 0; }
  // Makes later calls change nothing. Called when the agent ends, before it releases the ports and
  // connections of its present clients: the next agent must find these in the ledger.
  void freeze() { frozen_ = true; }

  // Returns the entries in a former agent's file, or no entries if `file` is not a ledger of this version.
  static std::vector<LedgerEntry> read(int file);

 private:
  bool write(Number number, const LedgerEntry& entry);
  void count(uint32_t user, int by);

  UniqueFd file_;
  const std::function<void()> on_others_;
  const uint32_t own_;
  Quota quota_;
  std::vector<uint32_t> users_{0};  // by entry number
  std::vector<Number> free_;
  size_t others_ = 0;
  bool frozen_ = false;
};

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
  // Returns whether every client of a former agent may still reclaim its ports and connections: `now` is
  // before until(). Afterwards only connections of processes that have not reconnected can be restored.
  bool hold(TimePoint now) const { return now < until_; }
  TimePoint until() const { return until_; }

  // Releases the user's claims that conflict with `to`, the port to which the user is about to bind. Returns
  // whether there were any.
  bool yield_port(uint16_t port_space, const PortBinding& to, uid_t user);
  // Checks that the user had this connection with the former agent, and removes the claim. Returns false if
  // the user has no such claim or the claim has expired. `is_awaited`: the process with the QP has not
  // reconnected yet, so the claim has not expired. Sets connection.peer_has_roce_port from the ledger, as the
  // program's own value is not trusted. Without a ledger, only checks time and kMaxWithoutLedger.
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
