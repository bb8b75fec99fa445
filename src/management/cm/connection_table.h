// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/intrusive_list.h"
#include "base/quota.h"
#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "management/cm/events.h"
#include "management/cm/messages.h"
#include "management/cm/numbers.h"
#include "management/cm/parameters.h"

namespace verbena::cm {

// The last datagram that a connection sent, stored to be retransmitted by timer or as the answer to a
// duplicate request.
struct Repetition {
  Mad mad;
  bool kept = false;                     // whether `mad` has a datagram to send again
  MessageType type = MessageType::kReq;  // message type of `mad`
  uint16_t reason = 0;                   // Passage::reason
  uint16_t sent = 0;                     // number of transmissions
};

// The state of one communication ID: a connection between two QPs in IBTA's sense, or a service ID
// resolution. (Not to be confused with control::Connection, a socket to the agent.) The connection table owns
// this object; only the manager accesses it.
struct Connection {
  ConnectionInfo info;

  bool has_owner = true;     // the owner has not called destroy() yet
  bool lingers = false;      // in state kIdle, but repeats its last answer for 16 s
  uint64_t transaction = 0;  // transaction ID of the current request and its answers
  uint64_t service_id = 0;   // of a service ID resolution
  uint64_t local_ca_guid = 0;

  Repetition last;
  uint8_t retries_left = 0;    // retransmissions by timer of Repetition::mad that are left
  uint8_t unasked = 0;         // retransmissions by timer to a peer that has never answered
  Duration timeout{};          // how long to wait for an answer before the first retransmission
  Duration repeat_after{};     // interval of retransmissions: `timeout`, or more after an MRA
  TimePoint expires = kNever;  // of the timer; kNever if none runs, as for most connections
  ListHook wait_hook;          // of the table: connections in TIMEWAIT and lingering ones
};

// A set of connection states.
class StateSet {
 public:
  constexpr StateSet(std::initializer_list<State> states) {
    for (const State state : states) bits_ |= 1u << static_cast<unsigned>(state);
  }
  constexpr bool has(State state) const { return (bits_ >> static_cast<unsigned>(state) & 1) != 0; }

 private:
  static_assert(kStates <= 32);
  uint32_t bits_ = 0;
};

// States in which our REQ is unanswered.
inline constexpr StateSet kWaitsForRep{State::kReqSent, State::kMraReqReceived};

// States of a passive connection or resolution that is not established or answered yet.
inline constexpr StateSet kHalfOpen{State::kReqReceived, State::kMraReqSent, State::kRepSent,
                                    State::kMraRepReceived, State::kSidrReqReceived};

// States of a passive connection or resolution that the owner has not answered yet.
inline constexpr StateSet kAwaitsOwner{State::kReqReceived, State::kMraReqSent, State::kSidrReqReceived};

// States in which the connection holds the peer's QP, so that no other connection may use that QP. Once
// either side begins to disconnect, the QPN counts as free: the peer may use it for a new connection before
// we know that the old one has ended.
inline constexpr StateSet kHoldsRemoteQpn{State::kReqReceived,    State::kMraReqSent,  State::kRepSent,
                                          State::kMraRepReceived, State::kRepReceived, State::kMraRepSent,
                                          State::kEstablished};

// States in which the local QP belongs to the connection, as far as the peer knows.
inline constexpr StateSet kHoldsLocalQpn{
    State::kReqSent,    State::kMraReqReceived, State::kRepSent,  State::kMraRepReceived, State::kRepReceived,
    State::kMraRepSent, State::kEstablished,    State::kDreqSent, State::kDreqReceived};

// States of a connection that is being set up, in which the owner may send a REJ.
inline constexpr StateSet kRejectable{State::kReqSent,    State::kMraReqReceived, State::kReqReceived,
                                      State::kMraReqSent, State::kRepReceived,    State::kMraRepSent,
                                      State::kRepSent,    State::kMraRepReceived};

// States of a service ID resolution in progress.
inline constexpr StateSet kResolves{State::kSidrReqSent, State::kSidrReqReceived};

// Owns all connections of a manager: finds them by the numbers in messages, changes their states and holds
// their timers. Does not read or send messages. One thread.
class ConnectionTable {
 public:
  // Calls sink.on_timer_set(). REQUIRES: the references outlive the table
  ConnectionTable(const ManagerConfig& config, Sink& sink, Counters& counters, Random random);
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  // Creates a connection in state kIdle with a new ID.
  Connection& create(uint64_t context, const roce::Path& path, uint32_t account);
  // Adds an established connection of a former manager, under the ID that it had there. REQUIRES: the ID is
  // free
  Connection& take_up(const ConnectionInfo& agreed, uint64_t context);
  // Deletes the connection at once, in any state and without a message.
  void release(Connection& connection);
  // Deletes the connection if its owner has called destroy(), its state is kIdle, and it does not linger
  // (linger()).
  void release_if_done(Connection& connection);
  // Marks the connection as destroyed: its owner gets no more events. Deletes the connection if nothing is
  // left to do, or if it waits for a DREP and its account has too many such connections
  // (ManagerConfig::max_unanswered).
  void disown(Connection& connection);

  // Finds a connection or resolution by our ID, also after destroy(). Returns nullptr if there is none.
  Connection* find(LocalId id) const {
    const auto found = by_local_id_.find(id);
    return found != by_local_id_.end() ? found->second.get() : nullptr;
  }
  // Finds a connection for an operation of the owner. Errors: ENOENT if there is none or it was destroyed;
  // EINVAL if its state is not in `states`.
  Result<Connection*> find_owned(LocalId id);
  Result<Connection*> find_owned(LocalId id, StateSet states);
  // Finds a connection by the peer's address and ID. Returns nullptr if there is none.
  Connection* find_by_remote_id(const PeerNumber& id) const { return find_in(by_remote_id_, id); }
  // Finds the connection that uses this QP of the peer (kHoldsRemoteQpn). Returns nullptr if there is none.
  // `own`: the address at our end. `is_active`: our end is the active side.
  Connection* find_by_remote_qpn(const roce::Address& own, const roce::Address& peer, uint32_t qpn,
                                 bool is_active) const {
    return find_in(by_remote_qpn_, qpn_key(own, peer, qpn, is_active));
  }
  // Returns the first connection at or after (qpn, id) that holds a local QP (kHoldsLocalQpn), in the order
  // of QPNs and then of IDs. Returns nullptr if there is none.
  const Connection* next_by_local_qpn(uint32_t qpn, LocalId id) const;
  // Finds the service ID resolution that the peer requested under this ID. Returns nullptr if there is none.
  Connection* find_sidr_request(const PeerNumber& id) const { return find_in(sidr_requests_, id); }

  // Makes the connection findable by the peer's ID and QPN. REQUIRES: its state is in kHoldsRemoteQpn, and
  // the peer's ID and QPN do not change any more
  void insert_remote_numbers(Connection& connection);
  void insert_sidr_request(Connection& connection);

  // Changes the state of a connection and cancels its timer. All changes of state go through this function.
  void enter(Connection& connection, State state);
  // Enters TIMEWAIT for the local ACK timeout, at most longest_response_timeout (ManagerConfig).
  void enter_time_wait(Connection& connection, TimePoint now);
  // Enters kIdle, and keeps the connection for 16 s. Used for a connection that we refused, or a resolution
  // that we answered: if the peer repeats its request in this time, the manager repeats the answer.
  void linger(Connection& connection, TimePoint now);
  // Ends TIMEWAIT or lingering; the connection enters kIdle.
  void stop_waiting(Connection& connection);

  // Starts, or restarts, the timer that limits how long the owner may leave the peer's request unanswered
  // (ManagerConfig::longest_silence). Called for each request of the peer, also for duplicates, and by
  // Manager::delay().
  void await_owner(Connection& connection, TimePoint now);

  // Starts the connection's timer, or changes its time (Connection::expires).
  void set_timer(Connection& connection, TimePoint when);
  void cancel_timer(Connection& connection);
  // Returns when the first timer of the account expires; kNever if none runs.
  TimePoint deadline(uint32_t account) const;
  // Returns the account's connection whose timer expires first. REQUIRES: deadline(account) != kNever
  Connection& next_due(uint32_t account) const;
  // Returns the account whose timer expires first, or any if no timer runs. Looks at all accounts.
  uint32_t next_account() const;

  size_t size() const { return by_local_id_.size(); }
  size_t half_open() const { return half_open_.of_all(); }
  bool has_room_for(uint32_t account) const { return half_open_.allows(account); }
  // Returns the number of connections in TIMEWAIT or lingering.
  size_t waiting() const { return waiting_; }
  // Returns the number of connections in `state` that their owner has not destroyed.
  size_t owned_in(State state) const { return owned_[static_cast<size_t>(state)]; }

 private:
  size_t& owned_with(const Connection& connection) {
    return owned_[static_cast<size_t>(connection.info.state)];
  }
  // Connections by a number that the peer chose; several may have the same key.
  using ByPeer = std::unordered_multimap<PeerNumber, Connection*, KeyedHash>;
  static Connection* find_in(const ByPeer& index, const PeerNumber& key) {
    const auto found = index.find(key);
    return found != index.end() ? found->second : nullptr;
  }
  // Removes the connection from the index, if it is there.
  static void erase_from(ByPeer& index, const PeerNumber& key, const Connection& connection);
  static PeerNumber remote_id_of(const Connection& connection) {
    return {connection.info.path.destination, connection.info.remote_id};
  }
  static PeerNumber remote_qpn_of(const Connection& connection) {
    const ConnectionInfo& info = connection.info;
    return qpn_key(info.path.source, info.path.destination, info.remote_qpn, info.is_active);
  }
  // Returns the key of a peer's QP in by_remote_qpn_. If an address is connected to itself, both ends of the
  // connection are in that index, possibly with the same QPN. (Programs that connect without QPs, such as
  // rdma-core's cmtime, invent QPNs.) So for such a connection, the active side's key differs from that of
  // the passive side.
  static PeerNumber qpn_key(const roce::Address& own, const roce::Address& peer, uint32_t qpn,
                            bool is_active) {
    constexpr uint32_t kOtherSide = 1u << 31;  // above all QPNs, which have 24 bits
    return {peer, own == peer && is_active ? qpn | kOtherSide : qpn};
  }

  LocalId draw_id();
  Connection& insert(const ConnectionInfo& info);
  void update_local_qpn(const Connection& connection, State state);
  void wait_until(Connection& connection, TimePoint when, TimePoint now);
  void cut_oldest_wait_short(TimePoint now);
  void unlink_wait(Connection& connection);

  const ManagerConfig& config_;
  Sink& sink_;
  Counters& counters_;
  Quota half_open_;
  Quota unanswered_;  // destroyed connections in state kDreqSent
  IdSequence ids_;
  size_t waiting_ = 0;
  std::array<size_t, kStates> owned_{};
  std::unordered_map<LocalId, std::unique_ptr<Connection>, KeyedHash> by_local_id_;
  ByPeer by_remote_id_;
  ByPeer by_remote_qpn_;
  ByPeer sidr_requests_;
  std::set<std::pair<uint32_t, LocalId>> by_local_qpn_;
  struct Timer {
    uint32_t account;
    TimePoint when;
    LocalId id;
    friend auto operator<=>(const Timer&, const Timer&) = default;
  };
  std::set<Timer> timers_;
  IntrusiveList<Connection, &Connection::wait_hook> waits_;  // oldest first
};

}  // namespace verbena::cm
