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

// A port that a user holds, or an established connection, for the next agent.
struct LedgerEntry {
  enum Kind : uint32_t { kFree = 0, kPort = 1, kConnection = 2 };
  static constexpr uint16_t kSharesAddress = 1;    // of kPort: RDMA_OPTION_ID_REUSEADDR
  static constexpr uint16_t kOneFamily = 2;        // of kPort: RDMA_OPTION_ID_AFONLY
  static constexpr uint16_t kPeerHasRocePort = 4;  // of kConnection: ConnectionInfo::peer_has_roce_port

  uint32_t kind = kFree;
  uint32_t user = 0;
  uint16_t port_space = 0;
  uint16_t flags = 0;
  uint32_t local_id = 0;  // kConnection only, as the next two
  uint32_t remote_id = 0;
  uint32_t local_qpn = 0;
  protocol::CmAddress source{};  // kPort only, as the next one
  protocol::CmAddress destination{};
  uint8_t peer[16] = {};  // kConnection only: the peer's GID
  uint8_t reserved[40] = {};
};
static_assert(sizeof(LedgerEntry) == 128 && std::is_trivially_copyable_v<LedgerEntry>);

// Records which user has which ports and connections, in a memfd that is part of the takeover state. So the
// next agent knows them before any client asks for them. An entry is written with one call and never crosses
// a page boundary: after a kill, each entry is there or not. For the agent's thread.
class Ledger {
 public:
  // Number of an entry, from 1; 0: none.
  using Number = uint32_t;
  static constexpr Number kMax = 1048576;

  // `on_others`: called when the first entry of a user other than the agent's own appears, or the last one
  // goes. If the file cannot be created, fd() is -1 and nothing is recorded.
  explicit Ledger(std::function<void()> on_others);

  int fd() const { return file_.get(); }
  // Adds an entry. 0: the user, or all users together, have too many; then the next agent does not know it.
  Number add(const LedgerEntry& entry);
  void change(Number number, const LedgerEntry& entry);
  void remove(Number number);
  bool has_others() const { return others_ > 0; }
  // Stops all changes: the agent ends, and the next one must find what its clients have.
  void freeze() { frozen_ = true; }

  // Returns the entries in a former agent's file; empty if it is no ledger.
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
