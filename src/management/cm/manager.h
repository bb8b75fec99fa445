// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "management/cm/connection_table.h"
#include "management/cm/events.h"
#include "management/cm/known_peers.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"
#include "management/cm/sender.h"

namespace verbena::cm {

// The connection manager of one GSI, with all connections of its devices. Pure: reads no clock and sends
// through `sink`. One thread calls on_mad() for each datagram to QP1, and on_timer() when a timer expires.
// The manager reports events to the handler; see Handler for the calls that a handler may make.
//
// The implementation is divided by the phases of a connection, into files such as active_side.cc and
// ending.cc.
//
// Every operation returns ENOENT for an unknown or destroyed ID. An operation returns EINVAL if the
// connection's state does not allow it, or if private data is too long.
class Manager {
 public:
  // REQUIRES: sink and handler outlive the manager
  Manager(const ManagerConfig& config, Sink& sink, Handler& handler, Random random);

  // Makes the manager report the messages of connections to `observer`. REQUIRES: the observer outlives the
  // manager
  void set_observer(Observer& observer);

  // Handles a datagram to QP1. `mad`: from the MAD's first byte to its last. Returns whether the owner must
  // pass the datagram to on_mad() again.
  Disposal on_mad(ConstBytes mad, const Arrival& arrival, TimePoint now);
  // deadline(account) returns the time when the next timer of the account's connections expires; kNever if
  // none runs. on_timer(account, now) handles one expired timer of the account, if there is one. For owners
  // whose Sink has on_timer_set().
  TimePoint deadline(uint32_t account) const { return table_.deadline(account); }
  void on_timer(uint32_t account, TimePoint now);
  // Like the two functions above, for all accounts together. This on_timer() handles all expired timers.
  TimePoint deadline() const { return table_.deadline(table_.next_account()); }
  void on_timer(TimePoint now);

  // Active: sends a REQ, and returns the ID of the new connection. on_reply(), on_rejected() or
  // on_unreachable() follows.
  Result<LocalId> connect(const ConnectRequest& request, uint64_t context, TimePoint now);
  // Passive, after on_request(): sends the REP. on_ready(), on_rejected() or on_unreachable() follows.
  Result<void> reply(LocalId id, const ConnectReply& reply, TimePoint now);
  // Active, after on_reply(): sends the RTU; the connection is established.
  Result<void> ready(LocalId id, ConstBytes private_data, TimePoint now);
  // Passive: marks the connection established before its RTU has come. Called when the connection's QP has
  // received data (IBV_EVENT_COMM_EST), so the RTU is late or lost. EISCONN if the connection is established
  // already. No event follows.
  Result<void> establish(LocalId id, TimePoint now);
  // Rejects a connection that is not established yet: sends a REJ. No event follows, except
  // on_time_wait_exit() if a REP was sent before.
  Result<void> reject(LocalId id, const RejectParameters& parameters, TimePoint now);
  // When to send an MRA: at once (kNow), or only if the peer repeats its REQ or REP (kOnDuplicate), as the
  // kernel's rdma_cm does.
  enum class MraTime : uint8_t { kNow, kOnDuplicate };
  // After on_request() or on_reply(): tells the peer by an MRA that the owner needs up to
  // 4.096 us * 2^service_timeout to answer.
  Result<void> delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                     TimePoint now);
  // Sends a DREQ on an established connection. on_disconnected() follows, or on_disconnect_request() if the
  // peer disconnects at the same time.
  Result<void> disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  // After on_disconnect_request(): sends the DREP. on_time_wait_exit() follows.
  Result<void> confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now);

  // Ends the owner's use of the ID; no more events follow. The peer still gets the message that it expects,
  // as from ib_destroy_cm_id(): a REJ, a DREQ (retransmitted until answered), a DREP or a SIDR_REP. One
  // exception: destroy() sends no message to the peer of an established XRC target, but end() does. The
  // connection is deleted after the last message and TIMEWAIT.
  Result<void> destroy(LocalId id, TimePoint now);
  // Tells the peer by a REJ, a DREQ or a DREP that the connection's QP is gone. The owner keeps the ID. After
  // a DREQ, on_disconnected() follows. After a DREP, or after a REJ if we had sent a REP, on_time_wait_exit()
  // follows. In all other cases, no event follows.
  Result<void> end(LocalId id, TimePoint now);
  // Deletes the connection at once, without a message or event, because its device is gone.
  Result<void> forget(LocalId id);

  // Adds an established connection of a former manager under the ID that it had there (agreed.local_id).
  // Errors: EEXIST if the ID is in use; EINVAL if a communication ID is zero. `agreed.state` is ignored.
  Result<void> restore(const ConnectionInfo& agreed, uint64_t context, TimePoint now);

  // Starts a service ID resolution and returns its ID. on_sidr_reply() or on_unreachable() follows.
  Result<LocalId> sidr_request(const SidrRequest& request, uint64_t context, TimePoint now);
  // After on_sidr_request(): sends the SIDR_REP. The owner may destroy the ID at once; a repeated SIDR_REQ is
  // still answered.
  Result<void> sidr_reply(LocalId id, const SidrReply& reply, TimePoint now);

  // Returns the parameters of a connection. ENOENT if the ID is unknown or destroyed.
  Result<ConnectionInfo> info(LocalId id) const;
  // A connection that, as far as the peer knows, still uses a QP of ours (kHoldsLocalQpn).
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
  // Returns the number of passive connections and resolutions in a state of kHalfOpen.
  size_t half_open() const { return table_.half_open(); }
  // Returns whether the account may have another half-open connection.
  bool has_room_for(uint32_t account) const { return table_.has_room_for(account); }
  // Returns the number of connections in TIMEWAIT, plus that of connections refused, and of resolutions
  // answered, in the last 16 s.
  size_t waiting() const { return table_.waiting(); }
  // Returns the number of connections in `state` that their owner has not destroyed.
  size_t owned_in(State state) const { return table_.owned_in(state); }

 private:
  using Receiver = void (Manager::*)(ConstBytes mad, const Incoming& incoming);
  static const Receiver kReceivers[kMessageTypes];
  template <class Message>
  void receive(ConstBytes mad, const Incoming& incoming);
  // Returns the connection that the message names, if that connection's peer has the address `sender`.
  template <class Message>
  const Connection* named_by(const Message& message, const roce::Address& sender);

  void expire(Connection& connection, TimePoint now);
  void give_up(Connection& connection, TimePoint now);
  void abandon(Connection& connection, TimePoint now);
  // Ends the wait of a connection. At the end of TIMEWAIT, calls on_time_wait_exit(). A refused connection or
  // answered resolution, which is kept for 16 s (ConnectionTable::linger()), ends without an event.
  void end_wait(Connection& connection);

  void drop(DropReason reason) { ++counters_.of(reason); }
  void count_duplicate(MessageType type) { ++counters_.duplicates[static_cast<size_t>(type)]; }

  // Asks the handler about a REQ or SIDR_REQ that is no duplicate, and returns its decision. Ignores requests
  // beyond max_half_open without asking. Counts ignored requests as dropped.
  template <class Request>
  Admission admit(const Request& request, const Incoming& incoming) {
    if (table_.half_open() >= config_.max_half_open) {
      drop(DropReason::kTooManyHalfOpen);
      return Admission::ignore();
    }
    const Admission admission = handler_.admit(request, incoming.arrival);
    if (admission.verdict == Admission::kIgnore) drop(DropReason::kNotAdmitted);
    if (admission.verdict == Admission::kWait) incoming.disposal = Disposal::kKeep;
    return admission;
  }
  // Returns whether an unknown connection may still be restored (Handler::may_return()). If so, the caller
  // must not tell the peer that the connection is gone.
  bool may_restore(uint32_t qpn, const Incoming& incoming);
  // Passes an event of a connection to the handler. For a destroyed connection calls no handler, but deletes
  // the connection if nothing is left to do. The handler may call operations, even destroy() on this
  // connection. So the caller of tell() does nothing more for this datagram or timer.
  template <class... Wanted, class... Given>
  void tell(Connection& connection, void (Handler::*event)(LocalId, uint64_t, Wanted...), Given&&... about) {
    if (connection.has_owner) {
      (handler_.*event)(connection.info.local_id, connection.info.context, std::forward<Given>(about)...);
    } else {
      table_.release_if_done(connection);
    }
  }

  // Finds the connection of a message that names both IDs, and checks the peer's ID and address. Returns
  // nullptr, and counts the drop, if the connection is unknown or has another peer. Otherwise records that
  // the peer has answered.
  Connection* of_peer(LocalId id, uint32_t remote_id, const Incoming& incoming);
  // Called for the first answer to our request, which quotes the request's ID. If the answer came from UDP
  // port 4791, messages from other ports of its host are dropped from now on (KnownPeers).
  //
  // A later message from port 4791 has this effect for its own connection only, because our client knows both
  // IDs of the connection by then. The client could tell them to an accomplice on a host with an RDMA
  // adapter, who can send from port 4791. That message must not make us drop the other messages of that
  // host.
  void note_port_of_answer(Connection& connection, const Incoming& incoming);
  // Returns whether the peer's QP, named in a REQ or REP, belongs to another connection of ours
  // (kHoldsRemoteQpn). A QP can have only one connection, so the peer has lost the old one. If the old
  // connection is established, sends a DREQ for it (IBTA volume 1, 12.9.8.3.1). But if another program of the
  // peer's host sent the message, leaves the old connection alone and counts the message as dropped.
  // `is_active`: the message is a REP; otherwise it is a REQ.
  bool is_stale(uint32_t remote_qpn, bool is_active, const Incoming& incoming);

  // active_side.cc: REQ out, REP in, RTU out.
  void handle(const Rep& rep, const Incoming& incoming);
  void accept(const Rep& rep, Connection& connection, const Incoming& incoming);
  void repeat_answer(const Rep& rep, Connection& connection, const Incoming& incoming);

  // passive_side.cc: REQ in, REP out, RTU in.
  void handle(const Req& req, const Incoming& incoming);
  void handle(const Rtu& rtu, const Incoming& incoming);
  void repeat_answer(const Req& req, Connection& connection, const Incoming& incoming);
  // LAPs, which ask for an alternate path, and APRs. RoCE has no alternate paths (annex A16).
  void handle(const Lap& lap, const Incoming& incoming);
  void handle(const Apr& apr, const Incoming& incoming);

  // delay.cc: MRAs, with which one side needs more time to answer a REQ or REP.
  void handle(const Mra& mra, const Incoming& incoming);
  bool enter_delayed(Connection& connection, Answered delayed);

  // ending.cc: REJs, for connections that cannot be set up.
  void handle(const Rej& rej, const Incoming& incoming);
  // Handles destroy() of a connection that is being set up: sends a REJ.
  void abandon_setup(Connection& connection, TimePoint now);
  // Ends a connection whose REQ or REP was never answered: sends a REJ ("timeout"), calls on_unreachable().
  void give_up_setup(Connection& connection, TimePoint now);
  Connection* rejected_by(const Rej& rej, const Incoming& incoming);
  void reject(Connection& connection, const RejectParameters& why, TimePoint now);
  void repeat_through_time_wait(Connection& connection, TimePoint now);

  // ending.cc: DREQs and DREPs.
  void handle(const Dreq& dreq, const Incoming& incoming);
  void handle(const Drep& drep, const Incoming& incoming);
  // Handles destroy() of a connection that is established or being disconnected: sends the DREQ or DREP that
  // the peer expects. The peer of an established XRC target gets no DREQ, since the target's QP outlives its
  // program, as in the kernel.
  void abandon_established(Connection& connection, TimePoint now);
  void accept(const Dreq& dreq, Connection& connection, const Incoming& incoming);
  void send_drep(Connection& connection, ConstBytes private_data, TimePoint now);
  void answer_drep(const Dreq& dreq, const Incoming& incoming);

  // service_resolution.cc: handles SIDR_REQs and SIDR_REPs, by which a UD client gets the QPN of a service
  // without a connection (IBTA volume 1, 12.11).
  void handle(const SidrReq& req, const Incoming& incoming);
  void handle(const SidrRep& rep, const Incoming& incoming);
  // Handles destroy(): stops repeating our own request, or refuses the peer's request with a SIDR_REP.
  void abandon_resolution(Connection& connection, TimePoint now);
  void send_sidr_rep(Connection& connection, const SidrReply& reply, TimePoint now);

  const ManagerConfig config_;
  Handler& handler_;
  Counters counters_;
  ConnectionTable table_;
  KnownPeers known_peers_;
  Sender sender_;
  Observer* observer_ = nullptr;
};

}  // namespace verbena::cm
