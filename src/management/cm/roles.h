// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/time.h"
#include "management/cm/connection_table.h"
#include "management/cm/counters.h"
#include "management/cm/known_peers.h"
#include "management/cm/manager_config.h"
#include "management/cm/messages.h"
#include "management/cm/owner.h"
#include "management/cm/parameters.h"
#include "management/cm/sender.h"

namespace verbena::cm {

// The objects of a manager that all its roles use.
struct RoleParts {
  const ManagerConfig& config;
  Counters& counters;
  ConnectionTable& table;
  KnownPeers& known_peers;
  Sender& sender;
  Owner& owner;
};

// The base of the roles. A role is one part of the connection manager's protocol: operations and messages
// that belong together. A role executes the owner's operations and receives messages through its handle()
// functions. Roles do not call each other; code that two roles need is in RoleParts or in this class.
class Role {
 protected:
  // REQUIRES: the objects in `parts` outlive the role
  explicit Role(const RoleParts& parts)
      : config_(parts.config),
        counters_(parts.counters),
        table_(parts.table),
        known_peers_(parts.known_peers),
        sender_(parts.sender),
        owner_(parts.owner) {}
  ~Role() = default;

  void drop(DropReason reason) { ++counters_.of(reason); }
  void count_duplicate(MessageType type) { ++counters_.duplicates[static_cast<size_t>(type)]; }

  // Finds the connection of a message that names both IDs, and checks the peer's ID and address. Returns
  // nullptr, and counts the drop, if the connection is unknown or has another peer. Otherwise records that
  // the peer has answered.
  Connection* of_peer(LocalId id, uint32_t remote_id, const Incoming& incoming);
  // Called for the first answer to our request, which quotes the request's ID. If the answer came from UDP
  // port 4791, messages from other ports are dropped from now on, for the whole host. Later messages from
  // port 4791 have this effect for their connection only. By then our client knows both IDs. An accomplice on
  // a host with an RDMA adapter could quote them, and so make us drop that host's other messages.
  void note_port_of_answer(Connection& connection, const Incoming& incoming);
  // Whether the peer's QP belongs to another connection of ours (kHoldsRemoteQpn). A QP can have only one
  // connection, so the peer has lost the old one. If the old connection is established, sends a DREQ for it
  // (IBTA volume 1, 12.9.8.3.1). If another program of the peer's host sent the message, the old connection
  // stays and the message counts as dropped. `is_active`: the message is a REP; otherwise it is a REQ.
  bool is_stale(uint32_t remote_qpn, bool is_active, const Incoming& incoming);

  const ManagerConfig& config_;
  Counters& counters_;
  ConnectionTable& table_;
  KnownPeers& known_peers_;
  Sender& sender_;
  Owner& owner_;
};

// The role of the side that requests a connection: sends REQs, handles REPs, sends RTUs. Manager documents
// the operations: connect(), ready().
class ActiveSide : private Role {
 public:
  explicit ActiveSide(const RoleParts& parts) : Role(parts) {}

  Result<LocalId> connect(const ConnectRequest& request, uint64_t context, TimePoint now);
  Result<void> ready(LocalId id, ConstBytes private_data);
  void handle(const Rep& rep, const Incoming& incoming);

 private:
  void accept(const Rep& rep, Connection& connection, const Incoming& incoming);
  void repeat_answer(const Rep& rep, Connection& connection, const Incoming& incoming);
};

// The role of the side that receives a request for a connection: handles REQs, sends REPs, handles RTUs.
// Manager documents the operations reply() and establish().
class PassiveSide : private Role {
 public:
  explicit PassiveSide(const RoleParts& parts) : Role(parts) {}

  Result<void> reply(LocalId id, const ConnectReply& reply, TimePoint now);
  Result<void> establish(LocalId id);
  void handle(const Req& req, const Incoming& incoming);
  void handle(const Rtu& rtu, const Incoming& incoming);

 private:
  void repeat_answer(const Req& req, Connection& connection, const Incoming& incoming);
  void settle_crossing(Connection& mine, const Req& req, const Incoming& incoming);
  void begin(Connection& connection, const Req& req, const Incoming& incoming);
};

// When to send an MRA: at once, or only in answer to a duplicate of the message whose answer is delayed, as
// the kernel's rdma_cm does.
enum class MraTime : uint8_t { kNow, kOnDuplicate };

// The role that sends and handles MRAs: one side needs more time to answer a REQ, REP or LAP. Manager
// documents the operation delay().
class Delay : private Role {
 public:
  explicit Delay(const RoleParts& parts) : Role(parts) {}

  Result<void> delay(LocalId id, uint8_t service_timeout, MraTime when, ConstBytes private_data,
                     TimePoint now);
  void handle(const Mra& mra, const Incoming& incoming);

 private:
  bool enter_delayed(Connection& connection, Answered delayed);
};

// The role that ends established connections: sends and handles DREQs and DREPs, and ends TIMEWAIT and
// lingering. Manager documents the operations disconnect() and confirm_disconnect().
class Ending : private Role {
 public:
  explicit Ending(const RoleParts& parts) : Role(parts) {}

  Result<void> disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  Result<void> confirm_disconnect(LocalId id, ConstBytes private_data, TimePoint now);
  void handle(const Dreq& dreq, const Incoming& incoming);
  void handle(const Drep& drep, const Incoming& incoming);

  // Handles destroy() of a connection that is established or being disconnected: sends the DREQ or DREP that
  // the peer expects. The peer of an established XRC target gets no DREQ, since the target's QP outlives its
  // program.
  void abandon(Connection& connection, TimePoint now);
  // Ends a connection whose DREQ was never answered: enters TIMEWAIT, calls on_disconnected(nullptr).
  void give_up(Connection& connection, TimePoint now);
  // Ends TIMEWAIT with on_time_wait_exit(), or the lingering of a refused connection without an event.
  void end_wait(Connection& connection);

 private:
  void accept(const Dreq& dreq, Connection& connection, const Incoming& incoming);
  void send_drep(Connection& connection, ConstBytes private_data, TimePoint now);
  void answer_drep(const Dreq& dreq, const Incoming& incoming);
};

// The role that changes an established connection's alternate path: sends and handles LAPs and APRs. Manager
// documents the operations load_alternate_path() and answer_alternate_path().
class Migration : private Role {
 public:
  explicit Migration(const RoleParts& parts) : Role(parts) {}

  Result<void> load_alternate_path(LocalId id, const PathFields& path, ConstBytes private_data,
                                   TimePoint now);
  Result<void> answer_alternate_path(LocalId id, AprStatus status, ConstBytes info, ConstBytes private_data);
  void handle(const Lap& lap, const Incoming& incoming);
  void handle(const Apr& apr, const Incoming& incoming);

  // Ends a migration whose LAP was never answered: calls on_unreachable(kLap). The connection stays.
  void give_up(Connection& connection);

 private:
  void refuse(const Lap& lap, AprStatus status, const Incoming& incoming);
  void end(Connection& connection);
};

// The role for connections that cannot be set up: sends and handles REJs, and gives up REQs and REPs without
// an answer. Manager documents the operation reject().
class Rejection : private Role {
 public:
  explicit Rejection(const RoleParts& parts) : Role(parts) {}

  Result<void> reject(LocalId id, const RejectParameters& parameters, TimePoint now);
  void handle(const Rej& rej, const Incoming& incoming);

  // Handles destroy() of a connection that is being set up: sends a REJ.
  void abandon(Connection& connection, TimePoint now);
  // Ends a connection whose REQ or REP was never answered: sends a REJ ("timeout"), calls on_unreachable().
  void give_up(Connection& connection, TimePoint now);

 private:
  Connection* rejected_by(const Rej& rej, const Incoming& incoming);
  void reject(Connection& connection, const RejectParameters& why, TimePoint now);
  void repeat_through_time_wait(Connection& connection, TimePoint now);
};

// The role for service ID resolution, used by UD (IBTA volume 1, 12.11): finds the QP of a service without a
// connection. Sends and handles SIDR_REQs and SIDR_REPs. Operations: Manager::sidr_request(), sidr_reply().
class ServiceResolution : private Role {
 public:
  explicit ServiceResolution(const RoleParts& parts) : Role(parts) {}

  Result<LocalId> request(const SidrRequest& request, uint64_t context, TimePoint now);
  Result<void> reply(LocalId id, const SidrReply& reply, TimePoint now);
  void handle(const SidrReq& req, const Incoming& incoming);
  void handle(const SidrRep& rep, const Incoming& incoming);

  // Handles destroy(): stops repeating our own request, or refuses the peer's request with a SIDR_REP.
  void abandon(Connection& connection, TimePoint now);
  // Ends our request after its last retransmission, with on_unreachable(kSidrReq).
  void give_up(Connection& connection);

 private:
  void send_rep(Connection& connection, const SidrReply& reply, TimePoint now);
};

}  // namespace verbena::cm
