// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "base/time.h"
#include "cm/chained_table.h"
#include "cm/connection.h"
#include "cm/counters.h"
#include "cm/events.h"
#include "cm/parameters.h"
#include "cm/state_set.h"
#include "cm/timer_heap.h"

namespace verbena::cm {

struct ManagerConfig {
  // Passive connections and resolutions that the owner has not answered, or whose answer the peer has not.
  // REQs beyond are dropped, so that their senders try again.
  size_t max_half_open = 4096;
  // Connections in TIMEWAIT, and those refused a short while ago; beyond, the oldest are forgotten early.
  // REQUIRES: more than 0
  size_t max_waiting = 65536;
  // The longest that a peer's word makes us wait: for each of its answers and in TIMEWAIT, and after an MRA.
  uint8_t longest_response_timeout = 22;
  uint8_t longest_service_timeout = 24;
  // The high half of transaction IDs that begin here.
  uint32_t transaction_prefix = 2;
  // Communication IDs are a count, made unguessable by this; drawn when not given.
  std::optional<uint32_t> id_mask;
  // Whether LAPs go to the handler. If not they are answered with kUnsupported: over RoCE there is no
  // alternate path (annex A16).
  bool alternate_paths = false;
};

// The connection manager of one GSI: all connections of all devices whose QP1 it is. Pure: it reads no clock
// and sends through its sink. Not thread-safe; whoever drives it calls on_mad() for each datagram to QP1 and
// on_timer() when deadline() has come. What happens is told to the handler; see there when it may call back.
//
// Every operation answers ENOENT for an ID that is not there, EINVAL for a state in which it makes no sense
// or private data that has no room.
class Manager {
 public:
  // REQUIRES: sink and handler outlive the manager
  Manager(const ManagerConfig& config, Sink& sink, Handler& handler, Random random);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // A datagram that came to QP1, from the MAD's first byte to its last.
  Disposal on_mad(ConstBytes mad, const Arrival& arrival, TimePoint now);
  // When on_timer() is next wanted; kNever: not before something else happens.
  TimePoint deadline() const { return timers_.next(); }
  void on_timer(TimePoint now);

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
  // 2^service_timeout to answer. The MRA leaves now, or (kOnDuplicate, as the kernel's rdma_cm does) only
  // when the peer asks again.
  enum class MraTime : uint8_t { kNow, kOnDuplicate };
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

  const Counters& counters() const { return counters_; }
  // Those of owners, and those that were destroyed and still have something to do.
  size_t size() const { return by_local_id_.size(); }
  size_t half_open() const { return half_open_; }
  // In TIMEWAIT, or refused a short while ago.
  size_t waiting() const { return waiting_; }

 private:
  // A datagram at hand.
  struct Receipt {
    uint64_t transaction;
    const Arrival& arrival;
    TimePoint now;
    Disposal& disposal;
  };
  using Receiver = void (Manager::*)(ConstBytes mad, const Receipt& receipt);
  static const Receiver kReceivers[kMessageTypes];
  template <class Message>
  void receive(ConstBytes mad, const Receipt& receipt);

  // What becomes of a REQ or SIDR_REQ that nobody has answered before. What is to be ignored is counted.
  template <class Request>
  Admission admit(const Request& request, const Receipt& receipt) {
    if (half_open_ >= config_.max_half_open) {
      drop(DropReason::kTooManyHalfOpen);
      return Admission::ignore();
    }
    const Admission admission = handler_.admit(request, receipt.arrival);
    if (admission.verdict == Admission::kIgnore) drop(DropReason::kNotAdmitted);
    if (admission.verdict == Admission::kWait) receipt.disposal = Disposal::kKeep;
    return admission;
  }

  // What each message does. An event, if any, is the last thing.
  void handle(const Req& req, const Receipt& receipt);
  void handle(const Mra& mra, const Receipt& receipt);
  void handle(const Rej& rej, const Receipt& receipt);
  void handle(const Rep& rep, const Receipt& receipt);
  void handle(const Rtu& rtu, const Receipt& receipt);
  void handle(const Dreq& dreq, const Receipt& receipt);
  void handle(const Drep& drep, const Receipt& receipt);
  void handle(const SidrReq& req, const Receipt& receipt);
  void handle(const SidrRep& rep, const Receipt& receipt);
  void handle(const Lap& lap, const Receipt& receipt);
  void handle(const Apr& apr, const Receipt& receipt);

  // Parts of these.
  std::optional<RejectParameters> refusal_of(const Req& req, const Arrival& arrival) const;
  void repeat_answer(const Req& req, Connection& connection, const Receipt& receipt);
  Connection* crossing(const Req& req, const Arrival& arrival);
  void become_passive(Connection& connection, const Req& req, const Receipt& receipt);
  bool is_stale(uint32_t remote_qpn, const Receipt& receipt);
  void accept(const Rep& rep, Connection& connection, const Receipt& receipt);
  void repeat_answer(const Rep& rep, Connection& connection, const Receipt& receipt);
  void take(const Dreq& dreq, Connection& connection, const Receipt& receipt);
  Connection* rejected_by(const Rej& rej, const Arrival& arrival);
  bool may_return(uint32_t qpn, const Receipt& receipt);
  Connection* of_peer(LocalId id, uint32_t remote_id, const Arrival& arrival);

  // Timers.
  void expire(Connection& connection, TimePoint now);
  void give_up(Connection& connection, TimePoint now);
  void end_wait(Connection& connection);

  // Sending.
  void send(const Mad& mad, MessageType type, const roce::Path& path);
  template <class Message>
  void send_and_keep(Connection& connection, const Message& message);
  template <class Message>
  void send_until_answered(Connection& connection, const Message& message, TimePoint now);
  void send_again(Connection& connection);
  template <class Message>
  void answer(const Message& message, const Receipt& receipt);
  void answer_rej(uint32_t local_id, uint32_t remote_id, Answered rejected, const RejectParameters& why,
                  const Receipt& receipt);
  void answer_drep(const Dreq& dreq, const Receipt& receipt);
  void send_rej(Connection& connection, const RejectParameters& why);
  void send_timeout_rej(Connection& connection);
  void send_dreq(Connection& connection, ConstBytes private_data, TimePoint now);
  void send_drep(Connection& connection, ConstBytes private_data, TimePoint now);
  void send_sidr_rep(Connection& connection, const SidrReply& reply, TimePoint now);
  void reject_in_state(Connection& connection, const RejectParameters& why, TimePoint now);
  uint64_t new_transaction(const Connection& connection) const;
  bool drop(DropReason reason);

  // Connections and their states.
  LocalId draw_id();
  Connection& create(uint64_t context, const roce::Path& path);
  Connection* find(LocalId id) { return by_local_id_.find(id); }
  Result<Connection*> find_in(LocalId id, StateSet states);
  void enter(Connection& connection, State state);
  Duration at_most(uint8_t exponent) const;
  void enter_time_wait(Connection& connection, TimePoint now);
  void linger(Connection& connection, TimePoint now);
  void wait_until(Connection& connection, TimePoint when, TimePoint now);
  void stop_waiting(Connection& connection);
  void insert_remote_id(Connection& connection);
  void erase_remote_id(Connection& connection);
  void insert_remote_qpn(Connection& connection);
  void erase_remote_qpn(Connection& connection);
  bool tell(Connection& connection);
  void release_if_done(Connection& connection);
  void release(Connection& connection);

  const ManagerConfig config_;
  Sink& sink_;
  Handler& handler_;
  Random random_;
  Counters counters_;
  uint32_t id_mask_;
  uint32_t ids_drawn_ = 0;
  size_t half_open_ = 0;
  size_t waiting_ = 0;
  ChainedTable<ByLocalId> by_local_id_;
  ChainedTable<ByRemoteId> by_remote_id_;
  ChainedTable<ByRemoteQpn> by_remote_qpn_;  // of connections that stand or come about
  ChainedTable<ByRemoteId> sidr_requests_;   // received; by the peer's request ID
  std::vector<Connection*> peer_to_peer_;    // those whose REQ is on its way
  TimerHeap timers_;
  IntrusiveList<Connection, &Connection::wait_hook> waits_;
};

}  // namespace verbena::cm
