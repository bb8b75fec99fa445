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

// The holder of a slot: a session, its process and its user.
struct Lessee {
  uint64_t session = 0;  // 0: none. The process has not reconnected since the agent was restarted
  uid_t uid = 0;
  pid_t pid = 0;
  uint64_t start_time = 0;
  std::string program;
  uint16_t protocol_version = 0;  // of the process's library; 0: not known yet
  bool shares_port = true;        // its user may have a socket of the port, and with it power over the port
  SharedProcess process = {};     // null: nothing signals its end
};

// Returns a number that all sessions of a process share and no other process has: made of pid and start time.
// Without a pid, the number of the session.
inline uint64_t process_number(const Lessee& lessee) {
  constexpr int kPidBits = 22;  // PID_MAX_LIMIT of 64-bit kernels
  if (lessee.pid == 0) return lessee.session;
  return lessee.start_time << kPidBits | static_cast<uint32_t>(lessee.pid);
}

struct LeasedSlot {
  uint32_t index = 0;
  uint64_t lease = 0;         // unique among the leases of all slots
  int socket = -1;            // -1: no wire
  bool is_forwarded = false;  // packets are forwarded; the holder does not have the socket
  int page = -1;
  Lessee lessee;
};

// Returns how packets reach the slot.
inline protocol::SlotWire wire_of(const LeasedSlot& slot) {
  if (slot.socket < 0) return protocol::SlotWire::kNone;
  return slot.is_forwarded ? protocol::SlotWire::kForwarded : protocol::SlotWire::kSocket;
}

// The slots of the port. Records which slots are leased and to which process, with their sockets and status
// pages. Slot k receives on the k-th socket of the SO_REUSEPORT group.
//
// Each user gets a share of the slots (base/quota.h). A returned slot rests for 2 s before its next lease, if
// another slot is free, so that QPNs do not reappear at once. For another user it rests for 30 s, and counts
// for its former user until then. A process may keep a copy of a socket that it has had, so that slot is only
// leased to users who may have the socket already. Without a wire, slots are leased from the highest index
// down: sockets that are added later start at 0.
class SlotTable {
 public:
  // Never leased: slot 0, and the last slot, which has the multicast QPN.
  static constexpr uint32_t kEnd = roce::Qpn::kSlots - 1;
  static constexpr Quota::Size kSize{.all = kEnd - 1, .reserve = 126};

  // Whether nothing else keeps a slot that came back from being leased, to its last user or to another one.
  using MayBeLeased = std::function<bool(uint32_t slot, bool to_another_user)>;
  SlotTable(Wire& wire, uid_t own, MayBeLeased may_be_leased = {})
      : wire_(wire), own_(own), may_be_leased_(std::move(may_be_leased)), quota_(kSize, own) {}

  // Leases a slot. ENOSPC: all are leased. EDQUOT: the user has its share. EBUSY: the user's processes hold
  // the locks of too many sockets. EMFILE etc.: no socket or page can be made.
  Result<LeasedSlot> lease(const Lessee& lessee, TimePoint now);
  // Lets a process that reconnects after the agent's restart keep its slot. ENOENT: the slot was not leased
  // to this process.
  Result<void> keep(uint32_t index, const Lessee& lessee);
  // Like keep(), but identifies the process by the secret in the slot's status page. A pid may mean nothing
  // here: the former agent may have been in another pid namespace.
  Result<void> claim(uint32_t index, const protocol::SlotSecret& secret, const Lessee& lessee);
  // Ends a lease. ENOENT: the slot is not leased to this session.
  Result<void> take_back(uint32_t index, uint64_t session, TimePoint now);

  // Adopts the slots of an agent that died, from its takeover state, and passes the sockets to the wire.
  // Leased slots stay leased, with session 0.
  Result<void> adopt(TakeoverState::Contents& contents, TimePoint now);

  // Returns the first leased slot from `index` on.
  std::optional<LeasedSlot> find_leased(uint32_t index) const;
  // Like find_leased(), among the slots that are leased to this user.
  std::optional<LeasedSlot> find_lent_to(uid_t user, uint32_t index) const;
  std::vector<LeasedSlot> leased() const;
  // Both look only at slots of this session: clients come and go all the time.
  std::vector<LeasedSlot> leased_to(uint64_t session) const;
  std::optional<LeasedSlot> first_lent_to(uint64_t session) const;
  size_t leased_to_other_users() const { return lent_to_other_users_; }
  // Returns all slots as the takeover state records them.
  std::vector<SlotRecord> records() const;
  SlotRecord record(uint32_t index) const;

 private:
  static constexpr Duration kRest = std::chrono::seconds(2);
  static constexpr Duration kRestBetweenUsers = std::chrono::seconds(30);

  struct Entry {
    bool leased = false;
    uint64_t lease = 0;
    bool is_forwarded = false;
    Lessee lessee;
    uid_t last_uid = kNobody;
    uid_t socket_uid = kNobody;  // the user that may have a copy of the socket
    uid_t counts_for = kNobody;  // the user whose share it is in
    UniqueFd page;
    TimePoint free_since{};
  };

  // The user that requests a slot, and whether its quota allows more than what counts for it already.
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
  // Whether the user may have the slot. The slot must have rested for `rest`, or for kRestBetweenUsers if
  // another user had it.
  bool may_have(const Wanted& wanted, uint32_t index, const Entry& entry, Duration rest) const;
  std::optional<uint32_t> longest_free(const Wanted& wanted, Duration rest) const;
  LeasedSlot describe(uint32_t index, const Entry& entry) const;
  // Returns a slot of this user whose process has not reconnected yet, or nullptr.
  Entry* find_orphan(uint32_t index, uid_t user);
  void give_to(uint32_t index, Entry& entry, const Lessee& lessee);
  // Add the holder to the indexes, and remove it from them.
  void enter_lessee(uint32_t index, const Entry& entry);
  void strike_lessee(uint32_t index, const Entry& entry);
  void free(uint32_t index, Entry& entry, TimePoint now);
  void pass_on(uint32_t index, UniqueFd forwarder_end);

  Wire& wire_;
  const uid_t own_;
  const MayBeLeased may_be_leased_;
  Quota quota_;
  uint64_t leases_ = 0;
  std::map<uint32_t, Entry> entries_;                    // all but slot 0
  std::set<std::pair<uint64_t, uint32_t>> by_borrower_;  // leased slots, by session and index
  std::set<std::pair<uid_t, uint32_t>> by_user_;         // leased slots, by user and index
  size_t lent_to_other_users_ = 0;
};

}  // namespace verbena::agent
