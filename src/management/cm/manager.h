// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "management/cm/active_side.h"
#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/delay.h"
#include "management/cm/ending.h"
#include "management/cm/events.h"
#include "management/cm/known_peers.h"
#include "management/cm/manager_config.h"
#include "management/cm/migration.h"
#include "management/cm/observer.h"
#include "management/cm/owner.h"
#include "management/cm/parameters.h"
#include "management/cm/passive_side.h"
#include "management/cm/receipt.h"
#include "management/cm/rejection.h"
#include "management/cm/role.h"
#include "management/cm/sender.h"
#include "management/cm/service_resolution.h"

namespace verbena::cm {

// The connection manager of one GSI: all connections of all devices whose QP1 it is. Pure: it reads no clock
// and sends through its sink. One thread: it calls on_mad() for each datagram to QP1 and on_timer() when
// deadline() has come. What happens is told to the handler; see there when it may call back.
//
// This class is the way in, and no more: each message, operation and expired timer goes to a role (role.h).
// What the roles share is the table of connections, the sender and the owner.
//
// Every operation answers ENOENT for an ID that is not there, EINVAL for a state in which it makes no sense
// or private data that has no room.
class Manager {
 public:
  // REQUIRES: sink and handler outlive the manager
  Manager(const ManagerConfig& config, Sink& sink, Handler& handler, Random random);
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // REQUIRES: the observer outlives the manager
  void set_observer(Observer& observer);

  // A datagram that came to QP1, from the MAD's first byte to its last.
  Disposal on_mad(ConstBytes mad, const Arrival& arrival, TimePoint now);
  // When on_timer() is next wanted; kNever: not before something else happens.
  TimePoint deadline() const { return table_.deadline(); }
  // Handles so many expired timers at most; deadline() stays in the past when there are more.
  void on_timer(TimePoint now, size_t most = SIZE_MAX);

  // Active: sends the REQ. on_reply(), on_rejected() or on_unreachable() follows.
  Result<LocalId> connect(const ConnectRequest& request, uint64_t context, TimePoint now);
  // Passive, after on_request(): the REP. on_ready(), on_rejected() or on_unreachable() follows.
  Result<void> reply(LocalId id, const ConnectReply& reply, TimePoint now);
  // Active, after on_reply(): the RTU; the connection is established.
  Result<void> ready(LocalId id, ConstBytes private_data, TimePoint now);
  // Passive: the connection is established as its QP has received something, so the RTU must be late or lost
  // (IBV_EVENT_COMM_EST). EISCONN if it is already. No event follows.
  Result<void> establish(LocalId id, TimePoint now);
  // Before it is established: the REJ. No event follows.
  Result<void> reject(LocalId id, const RejectParameters& parameters, TimePoint now);
  // After on_request(), on_reply() or on_alternate_path(): the owner needs as long as 4.096 us *
  // 2^service_timeout to answer.
  using MraTime = cm::MraTime;
  Result<void> delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                     TimePoint now);
  // The DREQ. on_disconnected() follows; or on_disconnect_request(), if the peer does the same.
  Result<void> disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  // After on_disconnect_request(): the DREP. on_time_wait_exit() follows.
  Result<void> confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now);

  // The owner wants to hear no more of this ID. What the peer is owed it still gets, as from
  // ib_destroy_cm_id(): a REJ, a DREQ, repeated until it is answered, a DREP, a SIDR_REP. A connection that
  // is not idle is forgotten when that is done and TIMEWAIT is over.
  Result<void> destroy(LocalId id, TimePoint now);
  // The connection's QP is gone: tells the peer so, by a REJ, a DREQ or a DREP. The owner keeps the ID. After
  // a DREQ on_disconnected() follows, after a REJ nothing.
  Result<void> end(LocalId id, TimePoint now);
  // Forgets the connection at once and in silence: its device is gone.
  Result<void> forget(LocalId id);

  // Takes up a connection that was established with a former manager, under the same ID. EEXIST if that is
  // taken. Its state is not looked at.
  Result<void> restore(const ConnectionInfo& agreed, uint64_t context, TimePoint now);

  // Service ID resolution: on_sidr_reply() or on_unreachable() follows.
  Result<LocalId> sidr_request(const SidrRequest& request, uint64_t context, TimePoint now);
  // After on_sidr_request(). The owner need not keep the ID for the sake of a repeated SIDR_REQ.
  Result<void> sidr_reply(LocalId id, const SidrReply& reply, TimePoint now);

  // The LAP: on_alternate_path_answer(), on_rejected() or on_unreachable(kLap) follows. Active side only.
  Result<void> load_alternate_path(LocalId id, const PathFields& path, ConstBytes private_data,
                                   TimePoint now);
  // After on_alternate_path(): the APR.
  Result<void> answer_alternate_path(LocalId id, AprStatus status, ConstBytes info, ConstBytes private_data,
                                     TimePoint now);

  Result<ConnectionInfo> info(LocalId id) const;
  // A connection that holds a QP of ours: its peer does not know yet that it is over.
  struct QpHolder {
    uint32_t qpn;
    LocalId id;
    bool has_owner;  // it was not destroyed
    uint64_t context;
  };
  // The first of them at or after this QPN and ID, in the order of QPNs and then of IDs.
  std::optional<QpHolder> next_qp_holder(uint32_t qpn, LocalId id) const;

  const Counters& counters() const { return counters_; }
  // Those of owners, and those that were destroyed and still have something to do.
  size_t size() const { return table_.size(); }
  size_t half_open() const { return table_.half_open(); }
  // Whether an account may have another one half open.
  bool has_room_for(uint32_t account) const { return table_.has_room_for(account); }
  // In TIMEWAIT, or refused a short while ago.
  size_t waiting() const { return table_.waiting(); }
  // Those of owners.
  size_t owned_in(State state) const { return table_.owned_in(state); }

 private:
  using Receiver = void (*)(Manager& manager, ConstBytes mad, const ReceiverReport& receipt);
  static const Receiver kReceivers[kMessageTypes];
  template <class Message, auto Role>
  static void receive(Manager& manager, ConstBytes mad, const ReceiverReport& receipt);

  // The connection that the message is about, if its sender's address is the peer's.
  template <class Message>
  const Connection* named_by(const Message& message, const roce::Address& sender);

  void expire(Connection& connection, TimePoint now);
  void give_up(Connection& connection, TimePoint now);
  void forget_request(Connection& connection);
  void abandon(Connection& connection, TimePoint now);

  const ManagerConfig config_;
  Counters counters_;
  ConnectionTable table_;
  KnownPeers known_peers_;
  Sender sender_;
  Owner owner_;
  Observer* observer_ = nullptr;
  const RoleParts parts_;

  ActiveSide active_side_{parts_};
  PassiveSide passive_side_{parts_};
  Delay delay_{parts_};
  Rejection rejection_{parts_};
  Ending ending_{parts_};
  ServiceResolution service_resolution_{parts_};
  Migration migration_{parts_};
};

}  // namespace verbena::cm
