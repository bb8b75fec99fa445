// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include <sys/types.h>

#include "base/quota.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/protocol/connection_messages.h"

namespace verbena::agent {

// Describes to the next agent a port that a user holds, or a connection. A connection gets an entry when its
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
  // Adds an entry and returns its number. Returns 0 if the entry is not recorded: the quota (of the user or
  // of all) is used up, there is no file, a write failed, or freeze() was called.
  Number add(const LedgerEntry& entry);
  void change(Number number, const LedgerEntry& entry);
  void remove(Number number);
  bool has_others() const { return others_ > 0; }
  // Makes later changes have no effect. Called when the agent ends, so that the next agent finds the ports
  // and connections of its clients.
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

}  // namespace verbena::agent
