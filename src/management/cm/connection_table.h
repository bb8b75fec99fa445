// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/intrusive_list.h"
#include "base/quota.h"
#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "management/cm/chained_table.h"
#include "management/cm/connection.h"
#include "management/cm/counters.h"
#include "management/cm/id_sequence.h"
#include "management/cm/manager_config.h"
#include "management/cm/state_set.h"
#include "management/cm/timer_heap.h"

namespace verbena::cm {

// All connections of a manager: it owns them, finds them by the numbers that messages name, changes their
// states and holds their timers. It knows no messages and sends none. One thread.
class ConnectionTable {
 public:
  // REQUIRES: config and counters outlive the table
  ConnectionTable(const ManagerConfig& config, Counters& counters, Random random);
  ~ConnectionTable();
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  // A new connection, idle, with an ID of its own.
  Connection& create(uint64_t context, const roce::Path& path, uint32_t account = 0);
  // A connection that was established with a former manager, under the ID that it had there.
  // REQUIRES: the ID is free
  Connection& take_up(const ConnectionInfo& agreed, uint64_t context);
  // Forgets it at once.
  void release(Connection& connection);
  // Forgets it if it has no owner and nothing left to do.
  void release_if_done(Connection& connection);
  // Its owner wants to hear no more of it.
  void disown(Connection& connection);

  Connection* find(LocalId id) { return by_local_id_.find(id); }
  const Connection* find(LocalId id) const { return by_local_id_.find(id); }
  // For an operation of the owner. ENOENT: it has no such connection. EINVAL: it has, but in another state.
  Result<Connection*> find_owned(LocalId id);
  Result<Connection*> find_owned(LocalId id, StateSet states);
  Connection* find_by_remote_id(const PeerNumber& id) { return by_remote_id_.find(id); }
  // Of those that stand or are being set up.
  Connection* find_by_remote_qpn(const PeerNumber& qpn) { return by_remote_qpn_.find(qpn); }
  // The first connection at or after this QPN and ID that holds a local QP (kHoldsLocalQpn), in the order of
  // QPNs and then of IDs. Null: there is none.
  const Connection* next_by_local_qpn(uint32_t qpn, LocalId id) const;
  // A resolution that the peer asked for.
  Connection* find_sidr_request(const PeerNumber& id) { return sidr_requests_.find(id); }
  // The peer-to-peer connection of ours whose REQ is on its way, to that service over that path.
  Connection* find_crossing(uint64_t service_id, const roce::Address& own, const roce::Address& peer);

  // REQUIRES: the state has been entered in which the peer's numbers count; they do not change after this
  void insert_remote_numbers(Connection& connection);
  void insert_sidr_request(Connection& connection);
  // REQUIRES: the connection waits for a REP
  void insert_peer_to_peer(Connection& connection) { peer_to_peer_.push_back(&connection); }

  // Every change of state. The timer of the state that is left ends.
  void enter(Connection& connection, State state);
  void enter_time_wait(Connection& connection, TimePoint now);
  // Ends a connection that was refused, but keeps the refusal for a peer that asks again.
  void linger(Connection& connection, TimePoint now);
  // TIMEWAIT is over, or the lingering: the connection is idle.
  void stop_waiting(Connection& connection);

  // The peer asks, or asks again; the owner has yet to answer.
  void await_owner(Connection& connection, TimePoint now);

  void set_timer(Connection& connection, TimePoint when) { timers_.set(connection, when); }
  void cancel_timer(Connection& connection) { timers_.cancel(connection); }
  TimePoint deadline() const { return timers_.next(); }
  // REQUIRES: deadline() != kNever
  Connection& next_due() { return timers_.front(); }

  size_t size() const { return by_local_id_.size(); }
  size_t half_open() const { return half_open_.of_all(); }
  bool has_room_for(uint32_t account) const { return half_open_.allows(account); }
  // In TIMEWAIT, or lingering.
  size_t waiting() const { return waiting_; }
  // Those that have an owner.
  size_t owned_in(State state) const { return owned_[static_cast<size_t>(state)]; }

 private:
  size_t& owned_with(const Connection& connection) {
    return owned_[static_cast<size_t>(connection.info.state)];
  }
  LocalId draw_id();
  void erase_remote_id(Connection& connection);
  void erase_remote_qpn(Connection& connection);
  void update_local_qpn(const Connection& connection, State state);
  void wait_until(Connection& connection, TimePoint when, TimePoint now);
  void cut_oldest_wait_short(TimePoint now);
  void unlink_wait(Connection& connection);

  const ManagerConfig& config_;
  Counters& counters_;
  Quota half_open_;
  IdSequence ids_;
  size_t waiting_ = 0;
  std::array<size_t, kStates> owned_{};
  ChainedTable<ByLocalId> by_local_id_;
  ChainedTable<ByRemoteId> by_remote_id_;
  ChainedTable<ByRemoteQpn> by_remote_qpn_;
  ChainedTable<ByRemoteId> sidr_requests_;
  std::set<std::pair<uint32_t, LocalId>> by_local_qpn_;
  std::vector<Connection*> peer_to_peer_;
  TimerHeap timers_;
  IntrusiveList<Connection, &Connection::wait_hook> waits_;  // oldest first
};

}  // namespace verbena::cm
