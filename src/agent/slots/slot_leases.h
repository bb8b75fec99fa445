// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include <sys/types.h>

#include "agent/agent_host.h"
#include "agent/event_loop.h"
#include "agent/slots/domain_table.h"
#include "agent/slots/process.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "agent/takeover/takeover_state.h"
#include "base/result.h"
#include "base/time.h"

namespace verbena::agent {

// Watches orphans, by slot. An orphan is a process that holds a slot from a former agent and has not
// reconnected to this one.
//
// A pidfd shows when an orphan ends. The pidfd comes from the takeover state or is opened by the recorded
// pid. If neither a pidfd nor a pid is known, the orphan counts as ended if it has not reconnected within 30
// seconds. This happens if the former agent did not see the orphan's pid namespace and recorded no pidfd. It
// recorded none if the kernel lacks SO_PEERPIDFD or that agent was of an older release. If a pid was recorded
// without a pidfd, the start time shows whether it is still the same process.
class Orphans {
 public:
  using OnEnd = std::function<void(uint32_t slot)>;
  // `closer` closes pidfds and reads start times. REQUIRES: this object outlives the tasks of `closer`
  explicit Orphans(EventLoop& loop, ForeignCloser* closer = nullptr,
                   Duration unseen_patience = std::chrono::seconds(30))
      : loop_(loop), closer_(closer), unseen_patience_(unseen_patience) {}
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  // Watches the slot's process, and calls `on_end` when the process ends, in a turn of the process's user.
  // Returns false if the process has ended already. Also calls `on_end` if the pid turns out to be that of a
  // later process.
  bool watch(const LeasedSlot& slot, OnEnd on_end);
  // Stops watching the slot's process. Called when the process reconnects or its slot is taken back. Returns
  // whether the slot had an orphan.
  bool remove(uint32_t slot);
  bool contains(uint32_t slot) const { return orphans_.contains(slot); }
  bool empty() const { return orphans_.empty(); }

 private:
  struct Orphan {
    SharedProcess process;
    std::optional<EventLoop::TimerId> timer;  // only without a pidfd
  };
  // Returns the pidfd, a null pointer if the process has ended, or nullopt if neither pidfd nor pid is known.
  std::optional<SharedProcess> find_process(const Lessee& lessee) const;
  // Reads the process's start time on the user's thread (start_time_of()), and ends the orphan if it is not
  // the recorded one.
  void check_start(const LeasedSlot& slot, const SharedProcess& process, OnEnd on_end);

  EventLoop& loop_;
  ForeignCloser* const closer_;
  const Duration unseen_patience_;
  std::map<uint32_t, Orphan> orphans_;
};

// Leases slots to sessions and takes them back. Also takes back the slots of processes that end before they
// reconnect after an agent's restart.
class SlotLeases {
 public:
  // `counters` reads the slots' counters while they are leased. XRC domains that a process has joined with a
  // slot are closed when the lease ends.
  SlotLeases(EventLoop& loop, Wire& wire, SlotTable& slots, CounterPublisher& counters, DomainTable& domains,
             AgentHost& agent);

  // Returns whether the counters of 64 or more returned slots of the user are still unread.
  bool is_behind(uid_t user) const { return counters_.is_behind(user); }
  // Leases a slot. Returns the errors of SlotTable::lease(), and EDQUOT if the user is_behind().
  Result<LeasedSlot> lease(const Lessee& lessee);
  // Like the SlotTable methods of these names, and also informs the other parts of the agent.
  Result<void> keep(uint32_t index, const Lessee& lessee);
  Result<void> claim(uint32_t index, const protocol::SlotSecret& secret, const Lessee& lessee);
  Result<void> take_back(uint32_t index, uint64_t session);
  // Takes back the slots of a session that has ended. Takes two slots back before it returns, and the others
  // later, in turns of the session's user (UserTurns).
  void take_back_all(uint64_t session);
  // Adopts the slots of a former agent from its takeover state. Call watch_orphans() afterwards.
  Result<void> adopt(TakeoverState::Contents& contents) {
    return slots_.adopt(contents, MonotonicClock::now());
  }
  // Watches the processes of adopted slots, and takes back the slots of processes that have ended.
  void watch_orphans();
  // Makes seek_wire() do nothing until half of kWireInterval has passed.
  void pause_wire();
  // Binds UDP port 4791 if the agent does not have the port yet and the port is free. Called every
  // kWireInterval until the agent has the port, and before each lease.
  void seek_wire(TimePoint now);
  static constexpr Duration kWireInterval = std::chrono::milliseconds(500);

  // Both find() return the first leased slot with an index of `from` or higher, or nullopt. With `user`, only
  // slots that are leased to that user count.
  std::optional<LeasedSlot> find(uint32_t from) const { return slots_.find_leased(from); }
  Result<int> read_only_page(uint32_t index) const { return slots_.read_only_page(index); }
  std::optional<LeasedSlot> find(uint32_t from, std::optional<uid_t> user) const {
    return user ? slots_.find_leased_to(*user, from) : find(from);
  }
  bool is_leased_to_session(uint32_t index, uint64_t session) const;
  // Calls visit(index) for each slot that is leased to the session.
  template <class Visit>
  void for_each_of(uint64_t session, Visit visit) const {
    slots_.for_each_leased_to(session, visit);
  }
  // Returns whether the QP number is in a slot that is leased to this user.
  bool is_qpn_of(uint32_t qpn, uid_t user) const;
  // Returns the user that holds the slot, or kNobody if the slot is not leased.
  uid_t user_of(uint32_t slot) const;
  const Orphans& orphans() const { return orphans_; }

 private:
  // Completes keep() and claim(): if `kept` is no error, announces the reclaimed slot. Returns `kept`.
  Result<void> welcome(uint32_t index, Result<void> kept);
  // Takes back up to two slots of the session. Returns whether the session has more.
  bool take_back_some(uint64_t session);

  EventLoop& loop_;
  Wire& wire_;
  SlotTable& slots_;
  CounterPublisher& counters_;
  DomainTable& domains_;
  AgentHost& agent_;
  Orphans orphans_;
  TimePoint wire_retry_{};
};

}  // namespace verbena::agent
