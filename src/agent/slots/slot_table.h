// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/own_process.h"
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
  uint64_t session = 0;  // 0 if the process has not reconnected since a restart of the agent
  uid_t uid = 0;
  pid_t pid = 0;
  uint64_t start_time = 0;  // start_time_of(pid), from a former agent that recorded no pidfd; else 0
  std::string program;
  uint16_t protocol_version = 0;  // of the process's library; 0 if not known yet
  bool shares_port = true;        // false if its user may have no socket: packets are forwarded
  SharedProcess process = {};     // a pidfd; null if there is none
};

// Returns a number that all sessions of a process share and no other process has, from its pidfd. Before
// Linux 6.9, a later process of the same user and pid has the same number. Returns the session's number if
// neither tells. For traces only.
inline uint64_t process_number(const Lessee& lessee) {
  constexpr int kPidBits = 22;  // PID_MAX_LIMIT of 64-bit kernels
  constexpr uint64_t kFromPidfd = uint64_t{1} << 62;
  constexpr uint64_t kFromPid = uint64_t{1} << 61;
  const uint64_t unique = lessee.process ? unique_number_of(lessee.process->get()) : 0;
  if (unique != 0) return kFromPidfd | unique;
  if (lessee.pid == 0) return lessee.session;
  return kFromPid | uint64_t{lessee.uid} << kPidBits | static_cast<uint32_t>(lessee.pid);
}

struct LeasedSlot {
  uint32_t index = 0;
  uint64_t lease = 0;         // unique among the leases of all slots
  int socket = -1;            // owned by the Wire; -1 without UDP port 4791
  bool is_forwarded = false;  // the agent forwards packets; the holder does not have the socket
  int page = -1;              // descriptor of the status page, owned by the SlotTable
  Lessee lessee;
  QuotaShare descriptors{};  // counts until all that the end of the lease closes are closed
};

// Returns how packets from other hosts reach the slot's holder.
inline protocol::SlotWire wire_of(const LeasedSlot& slot) {
  if (slot.socket < 0) return protocol::SlotWire::kNone;
  return slot.is_forwarded ? protocol::SlotWire::kForwarded : protocol::SlotWire::kSocket;
}

// Allocates slots: shares of the QP numbers, each with a socket of UDP port 4791 and a status page. Records
// which process has leased which slot. Slot k receives on the k-th socket of the SO_REUSEPORT group.
//
// A quota limits the slots of each user (base/quota.h). A user gets a returned slot again after 2 s, so that
// QPNs do not reappear at once, or earlier if no other slot is free. Another user gets a returned slot after
// 30 s at the earliest. Until then the slot counts in its former user's quota. A process may keep a copy of
// its slot's socket. So a slot whose socket was given to a user is leased only to that user again. While UDP
// port 4791 is unavailable, slots are leased from the highest index down, because sockets that are added
// later start at index 0.
class SlotTable {
 public:
  // Slots 1 to kEnd - 1 can be leased. Slot 0 is the agent's own, and the last slot has the multicast QPN.
  static constexpr uint32_t kEnd = roce::Qpn::kSlots - 1;
  static constexpr Quota::Size kSize{.all = kEnd - 1, .reserve = 126};

  // Returns the maximum number of leases whose descriptors are open or wait to be closed, for an agent that
  // may open `descriptors`. When a lease ends, six descriptors are closed on the user's closing thread
  // (ForeignCloser), and the user can delay that. Three are the page, the read-only page and a copy of the
  // page for the last counters. The other three are copies of page, pidfd and forwarder's end for the
  // takeover state.
  static constexpr Quota::Size room_with(size_t descriptors) {
    return Quota::Size::of(std::min<size_t>(kSize.all, descriptors / 16));
  }

  // Returns whether a returned slot may be leased again, to its last user or, with `to_another_user`, to
  // another one. False, for example, while the connection manager still closes connections of the slot's
  // ended process.
  using MayBeLeased = std::function<bool(uint32_t slot, bool to_another_user)>;
  SlotTable(Wire& wire, uid_t own, MayBeLeased may_be_leased = {})
      : wire_(wire), own_(own), may_be_leased_(std::move(may_be_leased)), quota_(kSize, own) {}

  // Leases a slot. ENOSPC if no slot is free. EDQUOT if the user's quota allows no more, or if descriptors of
  // too many ended leases of the user are not closed yet. EBUSY for an untrusted user that would get a
  // socket, while Wire::is_held_up(). Other errors, such as EMFILE, if a socket or status page cannot be
  // created.
  Result<LeasedSlot> lease(const Lessee& lessee, TimePoint now);
  // Gives a slot to its process again when that process reconnects after a restart of the agent. Identifies
  // the process by user, pid and start time. ENOENT if the slot was not leased to this process. ENOENT also
  // if the pid is unknown and the slot's page has a secret. In that case the process must prove with the
  // secret that it had the slot: claim().
  Result<void> keep(uint32_t index, const Lessee& lessee);
  // Like keep(), but identifies the process by its user and by the secret in the slot's status page. Used if
  // pids cannot be compared, because the former agent was in another pid namespace. ENOENT if the secret
  // differs or is all zeros, or if the slot is not an orphan of this user. ENOENT also once the page's secret
  // was read four times: the user can make each reading take long.
  Result<void> claim(uint32_t index, const protocol::SlotSecret& secret, const Lessee& lessee);
  // Ends a lease. ENOENT if the slot is not leased to this session.
  Result<void> take_back(uint32_t index, uint64_t session, TimePoint now);

  // Adopts the slots of a killed agent from its takeover state, and passes their sockets to the Wire. Leased
  // slots stay leased to their processes, with session 0 until these reconnect. EINVAL if a socket is missing
  // or is not of the port's group.
  Result<void> adopt(TakeoverState::Contents& contents, TimePoint now);

  // Returns a read-only descriptor of a leased slot's page, for processes that watch the slot's process. This
  // object owns the descriptor, and keeps it open until the lease ends, because its close may take as long as
  // the slot's user likes. ENOENT if the slot is not leased; otherwise the kernel's error.
  Result<int> read_only_page(uint32_t index);

  // Returns the first leased slot with this or a higher index, or nullopt.
  std::optional<LeasedSlot> find_leased(uint32_t index) const;
  // Like find_leased(), but only among slots that are leased to this user.
  std::optional<LeasedSlot> find_leased_to(uid_t user, uint32_t index) const;
  std::vector<LeasedSlot> leased() const;
  // leased_to() returns all slots of the session. first_leased_to() returns the first of them, or nullopt if
  // there is none. Their cost depends on the number of the session's slots, and not on the number of all
  // slots.
  std::vector<LeasedSlot> leased_to(uint64_t session) const;
  std::optional<LeasedSlot> first_leased_to(uint64_t session) const;
  // Calls visit(index) for each slot of the session.
  template <class Visit>
  void for_each_leased_to(uint64_t session, Visit visit) const {
    const auto end = by_lessee_.end();
    for (auto at = by_lessee_.lower_bound({session, 0}); at != end && at->first == session; ++at) {
      visit(at->second);
    }
  }
  size_t leased_to_other_users() const { return leased_to_other_users_; }
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
    uid_t counts_for = kNobody;  // the user in whose quota the slot counts
    UniqueFd page;
    UniqueFd read_only_page;  // opened when it is first needed
    QuotaShare descriptors;   // LeasedSlot::descriptors
    TimePoint free_since{};
    uint8_t readings_left = 4;  // of the secret, while the slot is an orphan
  };

  // The user that requests a slot, and whether the user's quota allows one more than now.
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
  // Returns whether the user may get the slot. The slot must have been free for `rest`, or for
  // kRestBetweenUsers if another user had it.
  bool may_have(const Wanted& wanted, uint32_t index, const Entry& entry, Duration rest) const;
  std::optional<uint32_t> longest_free(const Wanted& wanted, Duration rest) const;
  LeasedSlot describe(uint32_t index, const Entry& entry) const;
  // Returns a slot of this user whose process has not reconnected yet, or nullptr.
  Entry* find_orphan(uint32_t index, uid_t user);
  // Returns whether the orphan's page has this secret. A `secret` of zeros means that the page has none.
  // Returns false after four readings, because the orphan's user can make each reading take long.
  static bool has_secret(Entry& orphan, const protocol::SlotSecret& secret);
  void give_to(uint32_t index, Entry& entry, const Lessee& lessee);
  // enter_lessee() adds a leased slot to by_lessee_, by_user_ and leased_to_other_users_. strike_lessee()
  // removes it from these.
  void enter_lessee(uint32_t index, const Entry& entry);
  void strike_lessee(uint32_t index, const Entry& entry);
  void free(uint32_t index, Entry& entry, TimePoint now);
  void pass_on(uint32_t index, uid_t user, UniqueFd forwarder_end);

  Wire& wire_;
  const uid_t own_;
  const MayBeLeased may_be_leased_;
  Quota quota_;
  const std::shared_ptr<Quota> unclosed_ = std::make_shared<Quota>(room_with(descriptor_limit()), own_);
  uint64_t leases_ = 0;
  std::map<uint32_t, Entry> entries_;                  // all but slot 0
  std::set<std::pair<uint64_t, uint32_t>> by_lessee_;  // leased slots, by session and index
  std::set<std::pair<uid_t, uint32_t>> by_user_;       // leased slots, by user and index
  size_t leased_to_other_users_ = 0;
};

}  // namespace verbena::agent
