// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/vault.h"
#include "agent/wire.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "roce/qpn.h"

namespace verbena::agent {

// Who a slot is lent to.
struct Borrower {
  uint64_t session =
      0;  // 0: none; the slot of a process that has not come back since the agent was restarted
  uid_t uid = 0;
  pid_t pid = 0;
  uint64_t start_time = 0;
  std::string program;
  uint16_t protocol_version = 0;  // of its library; 0: not known yet
};

struct LentSlot {
  uint32_t index = 0;
  int socket = -1;  // -1: no wire
  int page = -1;
  Borrower borrower;
};

// The slots: which are lent and to whom, and their sockets and status pages.
//
// A slot that came back rests a while before it is lent again, so that QPNs do not reappear at once. It is
// lent only to the user who had it, who may have kept a copy of the socket. Without a wire, slots are
// numbered from the top down, so that they are in nobody's way when sockets come after all.
class SlotTable {
 public:
  explicit SlotTable(Wire& wire) : wire_(wire) {}

  // ENOSPC: all are lent.
  Result<LentSlot> lend(const Borrower& borrower, TimePoint now);
  // A process from before the agent's restart comes back for its slot. ENOENT: it was not lent to this user.
  Result<void> keep(uint32_t index, const Borrower& borrower);
  // ENOENT: it is not lent to this session.
  Result<void> take_back(uint32_t index, uint64_t session, TimePoint now);
  void take_back_all(uint64_t session, TimePoint now);

  // The slots of an agent that died, from its vault; takes the sockets over into the wire. Those that were
  // lent stay so, with session 0.
  Result<void> adopt(Vault::Contents& contents, TimePoint now);

  // The first lent slot from `index` on.
  std::optional<LentSlot> find_lent(uint32_t index) const;
  std::vector<LentSlot> lent() const;
  // All slots as they go into the vault.
  std::vector<SlotRecord> records() const;
  SlotRecord record(uint32_t index) const;

 private:
  static constexpr Duration kRest = std::chrono::seconds(2);
  // The multicast QPN is in the last slot: never lent.
  static constexpr uint32_t kEnd = roce::Qpn::kSlots - 1;

  struct Entry {
    bool lent = false;
    Borrower borrower;
    uid_t last_uid = kNobody;
    UniqueFd page;
    TimePoint free_since{};
  };

  std::optional<uint32_t> choose(uid_t uid, TimePoint now);
  std::optional<uint32_t> longest_free(uid_t uid, TimePoint free_before) const;
  LentSlot describe(uint32_t index, const Entry& entry) const;
  void free(uint32_t index, Entry& entry, TimePoint now);

  Wire& wire_;
  std::map<uint32_t, Entry> entries_;  // all but slot 0
};

}  // namespace verbena::agent
