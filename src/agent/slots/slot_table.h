// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/slots/process.h"
#include "agent/slots/wire.h"
#include "agent/takeover/takeover_state.h"
#include "base/quota.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "control/protocol/messages.h"
#include "wire/roce/qpn.h"

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
  bool shares_port = true;        // its user may have a socket of the port, and what comes with that
  SharedProcess process = {};     // empty: nothing tells when it ends
};

// A number that all sessions of one process have, and no other process: its pid and when it was started.
// Where the pid is not known, the session's own.
inline uint64_t process_number(const Borrower& borrower) {
  constexpr int kPidBits = 22;  // PID_MAX_LIMIT of 64-bit kernels
  if (borrower.pid == 0) return borrower.session;
  return borrower.start_time << kPidBits | static_cast<uint32_t>(borrower.pid);
}

struct LeasedSlot {
  uint32_t index = 0;
  uint64_t lending = 0;      // no two lendings have the same, of whatever slot
  int socket = -1;           // -1: no wire
  bool handed_over = false;  // what comes to it; the borrower does not have the socket
  int page = -1;
  Borrower borrower;
};

// How packets come to it.
inline protocol::SlotWire wire_of(const LeasedSlot& slot) {
  if (slot.socket < 0) return protocol::SlotWire::kNone;
  return slot.handed_over ? protocol::SlotWire::kHandedOver : protocol::SlotWire::kSocket;
}

// The slots: which are lent and to whom, and their sockets and status pages.
//
// Each user gets a share of them (base/quota.h). A slot that came back rests a while before it is lent again,
// so that QPNs do not reappear at once; longer, if it is lent to another user, and until then it is in the
// share of who had it. If a process has had the socket,
// of which it may have kept a copy, it is lent only to the user of that process. Without a wire, slots are
// numbered from the top down, so that they are in nobody's way when sockets come after all.
class SlotTable {
 public:
  // The multicast QPN is in the last slot: never lent. Nor is slot 0.
  static constexpr uint32_t kEnd = roce::Qpn::kSlots - 1;
  static constexpr Quota::Size kSize{.all = kEnd - 1, .reserve = 126};

  // Whether nothing else keeps a slot that came back from being leased, to its last user or to another one.
  using MayBeLeased = std::function<bool(uint32_t slot, bool to_another_user)>;
  SlotTable(Wire& wire, uid_t own, MayBeLeased may_be_leased = {})
      : wire_(wire), own_(own), may_be_leased_(std::move(may_be_leased)), quota_(kSize, own) {}

  // ENOSPC: all are lent; EDQUOT: the user has its share; EMFILE and the like: no more can be made.
  Result<LeasedSlot> lend(const Borrower& borrower, TimePoint now);
  // A process from before the agent's restart comes back for its slot. ENOENT: it was not lent to this
  // process.
  Result<void> keep(uint32_t index, const Borrower& borrower);
  // The same, known by what the slot's page says, which that process has: its pid may mean nothing here, as
  // the former agent was in another pid namespace.
  Result<void> claim(uint32_t index, const protocol::SlotSecret& secret, const Borrower& borrower);
  // ENOENT: it is not lent to this session.
  Result<void> take_back(uint32_t index, uint64_t session, TimePoint now);

  // The slots of an agent that died, from its vault; takes the sockets over into the wire. Those that were
  // lent stay so, with session 0.
  Result<void> adopt(TakeoverState::Contents& contents, TimePoint now);

  // The first lent slot from `index` on.
  std::optional<LeasedSlot> find_lent(uint32_t index) const;
  // The same of those that are lent to this user.
  std::optional<LeasedSlot> find_lent_to(uid_t user, uint32_t index) const;
  std::vector<LeasedSlot> lent() const;
  // They look only at what is lent to the session, as clients come and go all the time.
  std::vector<LeasedSlot> lent_to(uint64_t session) const;
  std::optional<LeasedSlot> first_lent_to(uint64_t session) const;
  size_t lent_to_other_users() const { return lent_to_other_users_; }
  // All slots as they go into the vault.
  std::vector<SlotRecord> records() const;
  SlotRecord record(uint32_t index) const;

 private:
  static constexpr Duration kRest = std::chrono::seconds(2);
  static constexpr Duration kRestBetweenUsers = std::chrono::seconds(30);

  struct Entry {
    bool lent = false;
    uint64_t lending = 0;
    bool handed_over = false;
    Borrower borrower;
    uid_t last_uid = kNobody;
    uid_t socket_uid = kNobody;  // who may have a copy of the socket
    uid_t counts_for = kNobody;  // in whose share
    UniqueFd page;
    TimePoint free_since{};
  };

  // Who asks; and whether the user may have more than what counts for it already.
  struct Wanted {
    uid_t user;
    TimePoint now;
    bool may_grow;
  };
  bool is_trusted(uid_t user) const { return user == 0 || user == own_; }
  void forgive_rested(TimePoint now);
  bool may_be_leased(uint32_t index, bool to_another_user) const {
    return !may_be_leased_ || may_be_leased_(index, to_another_user);
  }
  void count_for(Entry& entry, uid_t user);
  Result<uint32_t> choose(const Wanted& wanted);
  Result<uint32_t> choose_without_wire(const Wanted& wanted) const;
  // A slot that has rested so long, if it was this user's, or as between users.
  bool may_have(const Wanted& wanted, uint32_t index, const Entry& entry, Duration rest) const;
  std::optional<uint32_t> longest_free(const Wanted& wanted, Duration rest) const;
  LeasedSlot describe(uint32_t index, const Entry& entry) const;
  // A slot of a process of this user that has not come back yet; nullptr: it is none.
  Entry* find_orphan(uint32_t index, uid_t user);
  void give_to(uint32_t index, Entry& entry, const Borrower& borrower);
  // Who is in the books as the one who has it.
  void enter_borrower(uint32_t index, const Entry& entry);
  void strike_borrower(uint32_t index, const Entry& entry);
  void free(uint32_t index, Entry& entry, TimePoint now);
  void hand_on(uint32_t index, UniqueFd courier_end);

  Wire& wire_;
  const uid_t own_;
  const MayBeLeased may_be_leased_;
  Quota quota_;
  uint64_t lendings_ = 0;
  std::map<uint32_t, Entry> entries_;                    // all but slot 0
  std::set<std::pair<uint64_t, uint32_t>> by_borrower_;  // those that are lent: session and index
  std::set<std::pair<uid_t, uint32_t>> by_user_;         // the same
  size_t lent_to_other_users_ = 0;
};

}  // namespace verbena::agent
