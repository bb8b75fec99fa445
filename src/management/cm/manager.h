// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/events.h"
#include "management/cm/known_peers.h"
#include "management/cm/manager_config.h"
#include "management/cm/observer.h"
#include "management/cm/owner.h"
#include "management/cm/parameters.h"
#include "management/cm/roles.h"
#include "management/cm/sender.h"

namespace verbena::cm {

// The connection manager of one GSI, with all connections of its devices. Pure: reads no clock and sends
// through `sink`. One thread, which calls on_mad() for each datagram to QP1 and on_timer() when deadline()
// has passed. Events go to the handler; see Handler for the calls that it may make.
//
// This class only dispatches: each message, operation and expired timer goes to a role (roles.h). The roles
// share the objects in RoleParts, such as the connection table.
//
// Every operation returns ENOENT for an unknown ID, and EINVAL in a state where it makes no sense or if
// private data is too long.
class Manager {
 public:
  // REQUIRES: sink and handler outlive the manager
  Manager(const ManagerConfig& config, Sink& sink, Handler& handler, Random random);
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Makes the manager report the messages of connections to `observer`. REQUIRES: the observer outlives the
  // manager
  void set_observer(Observer& observer);

  // Handles a datagram to QP1. `mad`: from the MAD's first byte to its last. Returns whether the owner must
  // pass the datagram in again.
  Disposal on_mad(ConstBytes mad, const Arrival& arrival, TimePoint now);
  // Returns when to call on_timer() next; kNever if no timer runs.
  TimePoint deadline() const { return table_.deadline(); }
  // Handles up to `most` expired timers. If more have expired, deadline() is in the past afterwards.
  void on_timer(TimePoint now, size_t most = SIZE_MAX);

  // Active: sends a REQ. on_reply(), on_rejected() or on_unreachable() follows.
  Result<LocalId> connect(const ConnectRequest& request, uint64_t context, TimePoint now);
  // Passive, after on_request(): sends the REP. on_ready(), on_rejected() or on_unreachable() follows.
  Result<void> reply(LocalId id, const ConnectReply& reply, TimePoint now);
  // Active, after on_reply(): sends the RTU; the connection is established.
  Result<void> ready(LocalId id, ConstBytes private_data, TimePoint now);
  // Passive: marks the connection established because its QP has received data, so the RTU must be late or
  // lost (IBV_EVENT_COMM_EST). EISCONN if it is established already. No event follows.
  Result<void> establish(LocalId id, TimePoint now);
  // Before the connection is established: sends a REJ. No event follows, except on_time_wait_exit() if a REP
  // was sent before.
  Result<void> reject(LocalId id, const RejectParameters& parameters, TimePoint now);
  using MraTime = cm::MraTime;
  // After on_request(), on_reply() or on_alternate_path(): tells the peer by an MRA that the owner needs up
  // to 4.096 us * 2^service_timeout to answer.
  Result<void> delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                     TimePoint now);
  // Sends a DREQ on an established connection. on_disconnected() follows, or on_disconnect_request() if the
  // peer disconnects at the same time.
  Result<void> disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  // After on_disconnect_request(): sends the DREP. on_time_wait_exit() follows.
  Result<void> confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now);

  // Ends the owner's use of the ID; no more events follow. The peer still gets the message that it expects,
  // as from ib_destroy_cm_id(): a REJ, a DREQ (retransmitted until answered), a DREP or a SIDR_REP. The
  // connection is deleted after that message and TIMEWAIT.
  Result<void> destroy(LocalId id, TimePoint now);
  // Tells the peer by a REJ, a DREQ or a DREP that the connection's QP is gone. The owner keeps the ID. After
  // a DREQ on_disconnected() follows; after a DREP, or a REJ that follows our REP, on_time_wait_exit(); else
  // nothing.
  Result<void> end(LocalId id, TimePoint now);
  // Deletes the connection at once, without a message or event, because its device is gone.
  Result<void> forget(LocalId id);

  // Adds an established connection of a former manager under the same ID. Errors: EEXIST if the ID is in use;
  // EINVAL if a communication ID is zero. `agreed.state` is ignored.
  Result<void> restore(const ConnectionInfo& agreed, uint64_t context, TimePoint now);

  // Starts a service ID resolution: on_sidr_reply() or on_unreachable() follows.
  Result<LocalId> sidr_request(const SidrRequest& request, uint64_t context, TimePoint now);
  // After on_sidr_request(): sends the SIDR_REP. The owner may destroy the ID at once; a repeated SIDR_REQ is
  // still answered.
  Result<void> sidr_reply(LocalId id, const SidrReply& reply, TimePoint now);

  // Active side of an established connection only: sends a LAP. EINVAL while another LAP is unanswered.
  // on_alternate_path_answer(), on_rejected() or on_unreachable(kLap) follows.
  Result<void> load_alternate_path(LocalId id, const PathFields& path, ConstBytes private_data,
                                   TimePoint now);
  // After on_alternate_path(): sends the APR.
  Result<void> answer_alternate_path(LocalId id, AprStatus status, ConstBytes info, ConstBytes private_data,
                                     TimePoint now);

  Result<ConnectionInfo> info(LocalId id) const;
  // A connection that holds a QP of ours: as far as the peer knows, the connection still uses that QP.
  struct QpHolder {
    uint32_t qpn;
    LocalId id;
    bool has_owner;  // the owner has not called destroy()
    uint64_t context;
  };
  // Returns the first QpHolder at or after (qpn, id), in the order of QPNs and then of IDs. Returns nullopt
  // if there is none. For visiting all holders, one per call.
  std::optional<QpHolder> next_qp_holder(uint32_t qpn, LocalId id) const;

  const Counters& counters() const { return counters_; }
  // Returns the number of connections, including destroyed ones that still have something to do.
  size_t size() const { return table_.size(); }
  size_t half_open() const { return table_.half_open(); }
  // Whether the account may have another half-open connection.
  bool has_room_for(uint32_t account) const { return table_.has_room_for(account); }
  // Returns the number of connections in TIMEWAIT, or refused at most 16 s ago.
  size_t waiting() const { return table_.waiting(); }
  // Returns the number of connections in that state that their owner has not destroyed.
  size_t owned_in(State state) const { return table_.owned_in(state); }

 private:
  using Receiver = void (*)(Manager& manager, ConstBytes mad, const Incoming& incoming);
  static const Receiver kReceivers[kMessageTypes];
  template <class Message, auto Role>
  static void receive(Manager& manager, ConstBytes mad, const Incoming& incoming);

  // Returns the connection that the message names, if that connection's peer has the address `sender`.
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
