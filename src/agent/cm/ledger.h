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

// A port that a user holds, or a connection that stands, as the next agent is to know it.
struct LedgerEntry {
  enum Kind : uint32_t { kFree = 0, kPort = 1, kConnection = 2 };
  static constexpr uint16_t kSharesAddress = 1;    // of kPort: RDMA_OPTION_ID_REUSEADDR
  static constexpr uint16_t kOneFamily = 2;        // of kPort: RDMA_OPTION_ID_AFONLY
  static constexpr uint16_t kPeerHasRocePort = 4;  // of kConnection: ConnectionInfo::peer_has_roce_port

  uint32_t kind = kFree;
  uint32_t user = 0;
  uint16_t port_space = 0;
  uint16_t flags = 0;
  uint32_t local_id = 0;  // of kConnection
  uint32_t remote_id = 0;
  uint32_t local_qpn = 0;
  protocol::CmAddress source{};  // of kPort
  protocol::CmAddress destination{};
  uint8_t peer[16] = {};  // of kConnection: its GID
  uint8_t reserved[40] = {};
};
static_assert(sizeof(LedgerEntry) == 128 && std::is_trivially_copyable_v<LedgerEntry>);

// Which user has which ports and connections, in a file in memory that lies in the vault: so that the next
// agent knows it before anybody asks for them. An entry is written at one go and never lies across two pages,
// so that an agent that is killed leaves each either there or not. Of the agent's thread.
class Ledger {
 public:
  // Entries are numbered from 1; 0: none.
  using Number = uint32_t;
  static constexpr Number kMax = 1048576;

  // `on_others`: users other than the agent's own have begun to have entries, or have none any more.
  // A ledger whose file cannot be made takes nothing, which says its fd().
  explicit Ledger(std::function<void()> on_others);

  int fd() const { return file_.get(); }
  // 0: the user, or all together, have too many. What is not in the ledger is not known to the next agent.
  Number add(const LedgerEntry& entry);
  void change(Number number, const LedgerEntry& entry);
  void remove(Number number);
  bool has_others() const { return others_ > 0; }
  // From now on it stays as it is: the agent ends, and what its clients have is to be found by the next.
  void freeze() { frozen_ = true; }

  // What a former agent's has; nothing, if it is none.
  static std::vector<LedgerEntry> read(int file);

 private:
  bool write(Number number, const LedgerEntry& entry);
  void count(uint32_t user, int by);

  UniqueFd file_;
  const std::function<void()> on_others_;
  const uint32_t own_;
  Quota quota_;
  std::vector<uint32_t> users_{0};  // by number
  std::vector<Number> free_;
  size_t others_ = 0;
  bool frozen_ = false;
};

}  // namespace verbena::agent
