// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "management/cm/messages.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// Our communication ID of a connection or service ID resolution. Never 0. An ID is reused only after all
// other IDs were used.
using LocalId = uint32_t;

// How a datagram arrived. `path.source` is the peer, `path.destination` is one of our addresses,
// `path.interface_index` is the incoming netdev.
struct Arrival {
  roce::Path path;
  uint16_t pkey = 0xffff;
  // The UDP source port is 4791. On a host with a Verbena agent only the agent can send from that port.
  bool from_roce_port = false;
  // Whether the owner can hold the datagram back and pass it to on_mad() again later. The handler decides to
  // do so (kWait) if the datagram concerns a connection or listener that may exist in a moment.
  bool may_wait = false;
  Duration waited{0};  // how long the owner has held the datagram back already
};

// Tells the owner whether to pass a datagram to on_mad() again.
enum class Disposal : uint8_t {
  kDone,
  kKeep,  // the owner passes the datagram to on_mad() again later; it has had no effect yet
};

// Returns the path for an answer to a datagram that came by the path `arrival`.
inline roce::Path answer_path(const roce::Path& arrival) {
  roce::Path path = arrival;
  path.source = arrival.destination;
  path.destination = arrival.source;
  path.hop_limit = 64;
  return path;
}

// The owner's decision on a REQ or SIDR_REQ.
struct Admission {
  enum Verdict : uint8_t {
    kAdmit,
    kRefuse,  // send a REJ with `reason`, or a SIDR_REP with `sidr_status`
    kIgnore,  // send no answer, so that the peer retries, as for a full backlog
    kWait,    // no answer yet: the owner passes the datagram to on_mad() again later. REQUIRES:
              // Arrival::may_wait
  };
  Verdict verdict = kRefuse;
  RejReason reason = RejReason::kInvalidServiceId;
  SidrStatus sidr_status = SidrStatus::kUnsupported;
  uint64_t context = 0;  // kAdmit: the context of the new connection
  uint32_t account = 0;  // kAdmit: ConnectionInfo::account of the new connection

  static Admission admit(uint64_t context, uint32_t account = 0) {
    return {kAdmit, {}, {}, context, account};
  }
  static Admission refuse(RejReason reason) { return {kRefuse, reason, SidrStatus::kRejected, 0, 0}; }
  static Admission refuse(SidrStatus status) { return {kRefuse, RejReason::kConsumer, status, 0, 0}; }
  static Admission ignore() { return {kIgnore, {}, {}, 0, 0}; }
  static Admission wait() { return {kWait, {}, {}, 0, 0}; }
};

// The owner of the connections: receives events caused by peers and timers. `context` is the value that the
// owner gave with the connection.
//
// The manager calls these functions from on_mad() and on_timer(), never from an operation, a function such as
// Manager::connect(). Except admit() and may_return(), each call is the last action for a datagram or timer.
// So these functions may call any operation on any connection, even destroy() on the connection of the event.
// None may call on_mad() or on_timer(). References are valid until the function returns.
//
// A connection that has failed (rejected, unreachable) or ended (time_wait_exit) stays idle until its owner
// calls destroy().
class Handler {
 public:
  virtual ~Handler() = default;

  // Decide on a REQ or SIDR_REQ, before a connection or resolution exists for it. Both admit() functions may
  // call no function of the manager but has_room_for().
  virtual Admission admit(const Req& req, const Arrival& arrival) = 0;
  virtual Admission admit(const SidrReq& req, const Arrival& arrival) = 0;
  enum class Return : uint8_t { kNever, kPossible, kWait };
  // Decides whether a connection that the manager does not know may still be restored from a former agent.
  // The first parameter is the connection's local QPN; 0 if the datagram contains none. kNever: the manager
  // answers that the connection is gone. kPossible: the manager does not answer, so that the peer retries.
  // kWait: like kPossible, but the owner passes the datagram to on_mad() again. REQUIRES for kWait:
  // Arrival::may_wait. may_return() may call no function of the manager.
  virtual Return may_return(uint32_t, const Arrival&) { return Return::kNever; }

  // Passive: a new connection, called right after it was admitted; answer with reply() or reject().
  virtual void on_request(LocalId id, uint64_t context, const Req& req, const Arrival& arrival) = 0;
  // Active: a REP came; answer with ready() or reject().
  virtual void on_reply(LocalId id, uint64_t context, const Rep& rep) = 0;
  // Passive: the peer's RTU came, so the connection is established. Not called after establish().
  virtual void on_ready(LocalId id, uint64_t context, const Rtu& rtu) = 0;
  // The peer rejected the connection, at any stage. on_time_wait_exit() follows in three cases: the reason is
  // "stale connection", on_reply() was called before, or the connection was established.
  virtual void on_rejected(LocalId id, uint64_t context, const Rej& rej) = 0;
  // No answer has come to a message of type `unanswered`: kReq, kRep or kSidrReq. For a passive connection or
  // resolution, kReq or kSidrReq means the peer's request: the owner did not answer it, and the peer has not
  // repeated it for ManagerConfig::longest_silence.
  virtual void on_unreachable(LocalId id, uint64_t context, MessageType unanswered) = 0;
  // The peer needs more time to answer our REQ or REP.
  virtual void on_delay(LocalId id, uint64_t context, const Mra& mra) = 0;
  // The peer disconnects; answer with confirm_disconnect(). If a DREQ of ours is unanswered at that time, the
  // manager has sent the DREP already. Then confirm_disconnect() is not needed, and on_time_wait_exit()
  // follows instead of on_disconnected().
  virtual void on_disconnect_request(LocalId id, uint64_t context, const Dreq& dreq) = 0;
  // Our DREQ was answered by `drep`. `drep` is nullptr if the peer did not answer, or answered with a REJ.
  // on_time_wait_exit() follows.
  virtual void on_disconnected(LocalId id, uint64_t context, const Drep* drep) = 0;
  // TIMEWAIT is over: no packet of this connection is under way any more, and its QP may be reused.
  virtual void on_time_wait_exit(LocalId id, uint64_t context) = 0;

  // A new service ID resolution; answer with sidr_reply().
  virtual void on_sidr_request(LocalId id, uint64_t context, const SidrReq& req, const Arrival& arrival) = 0;
  // The peer has answered our SIDR_REQ. No event follows.
  virtual void on_sidr_reply(LocalId id, uint64_t context, const SidrRep& rep) = 0;
};

// Sends the manager's datagrams, and is informed when the manager sets a timer. The manager calls a sink from
// on_mad(), on_timer() and operations such as connect(). An implementation may not call the manager.
class Sink {
 public:
  virtual ~Sink() = default;
  // Sends to QP1 of path.destination with Q_Key kGsiQkey. Failures count as packet loss.
  virtual void send(const Mad& mad, const roce::Path& path) = 0;
  // Called when a timer of a connection of `account` is set to `when`. At that time, the owner must call
  // Manager::on_timer(account, now), or the on_timer() for all accounts.
  virtual void on_timer_set([[maybe_unused]] uint32_t account, [[maybe_unused]] TimePoint when) {}
};

struct ConnectionInfo;

// A message that a connection has sent or received, for an Observer.
struct Passage {
  MessageType type = MessageType::kReq;
  uint16_t reason = 0;       // the reason of a REJ, or the status of a SIDR_REP or APR; else 0
  uint16_t repetitions = 0;  // sent: number of earlier transmissions. Received: 1 for a duplicate REQ
};

// Returns the reason or status in a message that has such a field; else 0.
template <class Message>
uint16_t reason_in(const Message& message) {
  if constexpr (requires { message.reason; }) {
    return message.reason;
  } else if constexpr (requires { message.status; }) {
    return static_cast<uint16_t>(message.status);
  } else {
    return 0;
  }
}

// Records the messages of connections, for traces. The manager calls an observer from on_mad(), on_timer()
// and operations such as connect(). An implementation may not call the manager. Received messages are
// reported only if their connection exists already, so a passive connection's first REQ is not. Messages of a
// connection that Manager::destroy() has ended, such as repeated DREQs, are not reported either. Those that
// destroy() itself sends are reported.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_sent(const ConnectionInfo& connection, const Passage& passage) = 0;
  virtual void on_received(const ConnectionInfo& connection, const Passage& passage) = 0;
};

}  // namespace verbena::cm
