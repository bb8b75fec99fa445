// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/time.h"
#include "management/cm/messages.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// Our communication ID of a connection or of a service ID resolution; never 0, and not used again before four
// billion others.
using LocalId = uint32_t;

// How a datagram came: `path.source` is the peer, `path.destination` one of our addresses, interface_index
// the netdev.
struct Arrival {
  roce::Path path;
  uint16_t pkey = 0xffff;
  // The UDP source port is RoCEv2's own, 4791. On a host with a Verbena agent only the agent can send from
  // it.
  bool from_roce_port = false;
  // Whether the owner can keep the datagram and bring it again, should it be for what may come in a moment.
  bool may_wait = false;
  Duration waited{0};  // how long it has been kept already
};

// What becomes of a datagram after on_mad().
enum class Disposal : uint8_t {
  kDone,
  kKeep,  // the handler wants it brought again: nothing has been done
};

// What an answer to `arrival` travels by.
inline roce::Path answer_path(const roce::Path& arrival) {
  roce::Path path = arrival;
  path.source = arrival.destination;
  path.destination = arrival.source;
  path.hop_limit = 64;
  return path;
}

// What becomes of a REQ or SIDR_REQ.
struct Admission {
  enum Verdict : uint8_t {
    kAdmit,
    kRefuse,  // REJ or SIDR_REP, with the reason
    kIgnore,  // no answer, so that the peer tries again: a full backlog
    kWait,    // no answer yet: the owner brings the datagram again. REQUIRES: Arrival::may_wait
  };
  Verdict verdict = kRefuse;
  RejReason reason = RejReason::kInvalidServiceId;
  SidrStatus sidr_status = SidrStatus::kUnsupported;
  uint64_t context = 0;  // kAdmit: of the new connection
  uint32_t account = 0;  // kAdmit: to which it counts while it is half open

  static Admission admit(uint64_t context, uint32_t account = 0) {
    return {kAdmit, {}, {}, context, account};
  }
  static Admission refuse(RejReason reason) { return {kRefuse, reason, SidrStatus::kRejected, 0, 0}; }
  static Admission refuse(SidrStatus status) { return {kRefuse, RejReason::kConsumer, status, 0, 0}; }
  static Admission ignore() { return {kIgnore, {}, {}, 0, 0}; }
  static Admission wait() { return {kWait, {}, {}, 0, 0}; }
};

// The owner of the connections, which hears of what peers and timers do to them. `context` is the word that
// the owner gave with the connection.
//
// Events come from on_mad() and on_timer() only, never out of an operation, and each is the last thing that
// is done about a datagram or an expired timer. So a handler may call any operation on any connection, that
// of the event included, even destroy(); but neither on_mad() nor on_timer(). References are good until it
// returns.
//
// A connection that has failed (rejected, unreachable) or ended (time_wait_exit) stays, doing nothing, until
// its owner calls destroy().
class Handler {
 public:
  virtual ~Handler() = default;

  // Whether a REQ or SIDR_REQ is wanted, before there is any state of it. These two may ask the manager
  // whether has_room_for() an account, and call nothing else of it.
  virtual Admission admit(const Req& req, const Arrival& arrival) = 0;
  virtual Admission admit(const SidrReq& req, const Arrival& arrival) = 0;
  // Whether a connection that the manager does not know may be a former one's, with the local QP `qpn` (0:
  // the datagram does not say), and still be restored. Then its peer is not told that there is none: it asks
  // again, or (kWait, for an arrival that may wait) the owner brings the datagram again. May not call the
  // manager either.
  enum class Return : uint8_t { kNever, kPossible, kWait };
  virtual Return may_return(uint32_t qpn, const Arrival& arrival);

  // Passive: a new connection, numbered by the manager, that wants reply() or reject(); at once after it was
  // admitted. Peer to peer: `id` is one that this side connects itself and that has become the passive one.
  virtual void on_request(LocalId id, uint64_t context, const Req& req, const Arrival& arrival) = 0;
  // Active: wants ready() or reject().
  virtual void on_reply(LocalId id, uint64_t context, const Rep& rep) = 0;
  // Passive: established. After establish() the RTU, if it comes at all, is a duplicate.
  virtual void on_ready(LocalId id, uint64_t context, const Rtu& rtu) = 0;
  // At any stage. A connection rejected as stale, or rejected when it was established, has time_wait_exit
  // still before it (see state()).
  virtual void on_rejected(LocalId id, uint64_t context, const Rej& rej) = 0;
  // The peer has not answered `unanswered`: kReq, kRep or kSidrReq; or kLap, which ends nothing but the LAP.
  // Of a passive connection, kReq or kSidrReq: it was not answered, and the peer has long stopped asking.
  virtual void on_unreachable(LocalId id, uint64_t context, MessageType unanswered) = 0;
  // The peer wants more time.
  virtual void on_delay(LocalId id, uint64_t context, const Mra& mra) = 0;
  // The peer disconnects: wants confirm_disconnect(). If our own DREQ was on its way too, the peer has been
  // answered already and time_wait_exit follows, as after on_disconnected().
  virtual void on_disconnect_request(LocalId id, uint64_t context, const Dreq& dreq) = 0;
  // Our DREQ is answered, or (nullptr) will never be. time_wait_exit follows.
  virtual void on_disconnected(LocalId id, uint64_t context, const Drep* drep) = 0;
  // No packet of this connection is on its way any more: its QP may be used again.
  virtual void on_time_wait_exit(LocalId id, uint64_t context) = 0;

  // A new resolution, that wants sidr_reply().
  virtual void on_sidr_request(LocalId id, uint64_t context, const SidrReq& req, const Arrival& arrival) = 0;
  virtual void on_sidr_reply(LocalId id, uint64_t context, const SidrRep& rep) = 0;

  // The peer wants another alternate path: wants answer_alternate_path(). Not called where the configuration
  // says that there are none.
  virtual void on_alternate_path(LocalId id, uint64_t context, const Lap& lap);
  virtual void on_alternate_path_answer(LocalId id, uint64_t context, const Apr& apr);
};

// Where datagrams go. Called by operations, on_mad() and on_timer(); may not call the manager.
class Sink {
 public:
  virtual ~Sink() = default;
  // To QP1 of path.destination, Q_Key kGsiQkey. What does not leave is lost, as on any network.
  virtual void send(const Mad& mad, const roce::Path& path) = 0;
};

}  // namespace verbena::cm
