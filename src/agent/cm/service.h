// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/agent_host.h"
#include "agent/cm/address.h"
#include "agent/cm/cleanup.h"
#include "agent/cm/connection_trace.h"
#include "agent/cm/early_messages.h"
#include "agent/cm/gsi_port.h"
#include "agent/cm/identifier.h"
#include "agent/cm/ledger.h"
#include "agent/cm/port_space.h"
#include "agent/cm/routes.h"
#include "agent/event_loop.h"
#include "base/bytes.h"
#include "base/quota.h"
#include "base/random.h"
#include "base/result.h"
#include "control/model/link.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/messages.h"
#include "management/cm/events.h"
#include "management/cm/manager.h"

namespace verbena::agent {

class CmService;

// Turns messages of peers and timeouts into events for programs. The kernel's rdma_cm makes the same events,
// with the same status. Also records the messages in the trace of the connection's client. For the agent's
// thread.
class PeerEvents final : public cm::Handler, public cm::Observer {
 public:
  // REQUIRES: service outlives this object
  explicit PeerEvents(CmService& service) : service_(service) {}

  // The context of an admitted request is a pointer to a new CmIdentifier. Nothing else owns that identifier
  // until on_request() or on_sidr_request() adds it to the listener's client.
  cm::Admission admit(const cm::Req& req, const cm::Arrival& arrival) override;
  cm::Admission admit(const cm::SidrReq& req, const cm::Arrival& arrival) override;
  Return may_return(uint32_t qpn, const cm::Arrival& arrival) override;
  void on_request(cm::LocalId id, uint64_t context, const cm::Req& req, const cm::Arrival& arrival) override;
  void on_reply(cm::LocalId id, uint64_t context, const cm::Rep& rep) override;
  void on_ready(cm::LocalId id, uint64_t context, const cm::Rtu& rtu) override;
  void on_rejected(cm::LocalId id, uint64_t context, const cm::Rej& rej) override;
  void on_unreachable(cm::LocalId id, uint64_t context, cm::MessageType unanswered) override;
  void on_delay(cm::LocalId, uint64_t, const cm::Mra&) override {}
  void on_disconnect_request(cm::LocalId id, uint64_t context, const cm::Dreq& dreq) override;
  void on_disconnected(cm::LocalId id, uint64_t context, const cm::Drep* drep) override;
  void on_time_wait_exit(cm::LocalId id, uint64_t context) override;
  void on_sidr_request(cm::LocalId id, uint64_t context, const cm::SidrReq& req,
                       const cm::Arrival& arrival) override;
  void on_sidr_reply(cm::LocalId id, uint64_t context, const cm::SidrRep& rep) override;

  // cm::Observer
  void on_sent(const cm::ConnectionInfo& connection, const cm::Passage& passage) override;
  void on_received(const cm::ConnectionInfo& connection, const cm::Passage& passage) override;

 private:
  // Decides whether to accept a peer's REQ or SIDR_REQ, and for which listener.
  template <class Message>
  cm::Admission decide(const Message& message, const cm::Arrival& arrival);
  static void take_in(cm::LocalId connection, uint64_t context,
                      const protocol::ConnectionParameters& parameters, cm::MessageType request);
  static void end_connection(CmIdentifier& id, int status);

  CmService& service_;
};

// Counters of identifiers, updated at each change, so that nobody needs to loop over all identifiers.
struct CmTally {
  size_t identifiers = 0;
  size_t listening = 0;
  size_t resolving = 0;  // waiting for a neighbour's hardware address

  CmTally& operator-=(const CmTally& other) {
    identifiers -= other.identifiers;
    listening -= other.listening;
    resolving -= other.resolving;
    return *this;
  }
};

// Gives CmClient access to its client's session: to reply, to disconnect, and to learn who the client is.
// Implemented by Session. For the agent's thread.
class CmClientHost {
 public:
  virtual ~CmClientHost() = default;
  virtual void send_reply(ConstBytes message) = 0;
  virtual void send_error(const protocol::MessageHeader& request, int error, std::string_view text) = 0;
  // Disconnects the client. Called when the client has too many queued events.
  virtual void hang_up() = 0;
  virtual uid_t user() const = 0;
  // Returns the client's pid for lists and traces, or 0 if the pid is unknown.
  virtual pid_t process() const { return 0; }
  virtual std::string_view program() const { return {}; }
  // Returns process_number() of the client, which is the same for all clients of one process.
  virtual uint64_t process_identity() const { return 0; }
  // Returns whether the client may name this QPN in requests: the QP is its user's, or the client is trusted.
  virtual bool may_use_qpn(uint32_t qpn) const = 0;
};

class CmClient;

// Runs connection management for a network namespace. Owns QP1, the connection manager behind it, the port
// spaces, and the means to resolve addresses. Passes datagrams and timeouts to the manager, and keeps
// messages that come too early (EarlyMessages). Clients (cm/client.h) own the identifiers; PeerEvents reports
// what peers do to them. For the agent's thread.
class CmService final : private cm::Sink {
 public:
  // REQUIRES: `loop`, `closer` and `agent` outlive this object
  CmService(EventLoop& loop, ForeignCloser& closer, uint16_t udp_port, AgentHost& agent);
  ~CmService() override;

  // Opens QP1 with slot 0's socket, unless it is open or the argument is negative. Logs a failure.
  void open_wire(int slot_socket);
  // Returns whether QP1 is open, so that datagrams can be sent to other hosts.
  bool has_wire() const { return gsi_.is_open(); }
  std::string no_wire_reason() const { return agent_.no_wire_reason(); }
  // Returns whether datagrams can reach path.destination. Without has_wire(), only this host is reached.
  bool reaches(const roce::Path& path) const;
  // Called when the agent ends. Destroys what gone clients have left, sends the staged messages, and stops
  // sending. Freezes the ledger, so that the next agent can restore the present clients' connections.
  void abandon() {
    gone_clients_.clear_all();
    gsi_.flush();
    gsi_.close();
    ledger_.freeze();
  }
  // Updates the links, and sends clients the events about removed or failed-over devices.
  // @param failed_over device indexes of bonds that have switched to another port
  void links_changed(const std::vector<control::Link>& links, std::span<const uint32_t> failed_over);
  // Sets the time until which clients of a killed agent may restore their objects. Until then no peer is told
  // that a connection or a listener does not exist. The peer's message is kept, or ignored so that the peer
  // repeats it.
  void expect_returns(TimePoint until);
  // Extends the time of expect_returns() to `until`, because another client may be about to reconnect. All
  // extensions together are limited to 5 seconds. Otherwise a user with many clients could delay the answers
  // to all peers.
  void expect_one_return(TimePoint until);
  TimePoint returns_until() const { return returns_until_; }
  bool expects_returns() const { return MonotonicClock::now() < returns_until_; }
  // Reserves for 30 seconds the ports and connections of a former agent's clients (Claims). `ledger`: the
  // former agent's ledger file, or -1 if it had none.
  void take_over(int ledger);
  // Returns this agent's ledger, whose file the takeover state keeps for the next agent.
  const Ledger& ledger() const { return ledger_; }
  // Returns whether the process that had this QP with a former agent lives and has not reconnected yet.
  bool is_orphan(uint32_t qpn) const { return agent_.is_orphan(qpn); }
  // Returns whether the agent must not end yet, because messages to peers may be outstanding. This is so
  // while a gone client has identifiers, or while any connection is neither in TIMEWAIT nor lingering after a
  // refusal.
  bool owes_farewells() const;

  // Clients by number, in the order of their arrival.
  using Clients = std::map<uint64_t, CmClient*>;

  // ---- for clients
  // join() adds a client to clients(). leave() removes it, when its program has ended.
  void join(CmClient& client);
  void leave(CmClient& client);
  EventLoop& loop() { return loop_; }
  // Returns the connection manager. Call settle() after each operation on it.
  cm::Manager& manager() { return manager_; }
  const cm::Manager& manager() const { return manager_; }
  // Makes the service send staged datagrams at the end of this round of the event loop.
  void settle();
  // Returns the port space with this RDMA_PS_* number. Fails with EPROTONOSUPPORT if there is none.
  Result<PortSpace*> port_space(uint16_t number);
  const PortLimits& port_limits() { return port_limits_.read(); }
  const LinkDirectory& links() const { return links_; }
  // REQUIRES for neighbours() and routes(): can_resolve()
  Neighbours& neighbours() { return *neighbours_; }
  RouteQuery& routes() { return *routes_; }
  bool can_resolve() const { return routes_.has_value(); }
  Random& random() { return random_; }
  Claims& claims() { return claims_; }
  // Record the identifier's port or connection in the ledger. note_port() also updates an existing entry.
  void note_port(CmIdentifier& id);
  void note_connection(CmIdentifier& id);
  // Remove the entry from the ledger. release_port() also releases the port in its port space.
  void release_port(CmIdentifier& id);
  void release_connection(CmIdentifier& id);
  // listener_began() and connection_returned() process kept messages (EarlyMessages) again, in turns of the
  // identifier's user. After an identifier has begun to listen, the former processes requests for its port.
  // After a connection was restored, the latter processes all messages from the peer's address that are no
  // requests.
  void listener_began(const CmIdentifier& id);
  void connection_returned(const CmIdentifier& id);
  // Records that a running program has ended a listener (EndedListeners).
  void listener_ended(const CmIdentifier& id);
  // Returns whether a listener may still appear on the port for a request that has waited this long.
  bool may_listen_soon(uint16_t port, Duration waited) const;
  // Resources of all programs of a user.
  struct Usage {
    Clients clients{};  // those whose program has not ended
    CmTally tally{};    // of `clients`
  };
  Usage& usage_of(uid_t user) { return usage_[user]; }
  const Usage* find_usage(uid_t user) const;
  // Returns all clients whose program has not ended.
  const Clients& clients() const { return clients_; }
  CmTally& tally() { return tally_; }
  const CmTally& tally() const { return tally_; }
  // Quota of event channels; each takes a descriptor.
  Quota& channels() { return channels_; }
  // Counts the objects that take most of the agent's memory. A user has at most kMaxOfUser of each kind. All
  // users together have at most twice as many, in shares (base/quota.h). Root and the agent's own user are
  // counted, but have no limit.
  struct Shares {
    static constexpr size_t kMaxOfUser = 262144;
    static constexpr Quota::Size kAll = Quota::Size::of(2 * kMaxOfUser);

    explicit Shares(uid_t own) : identifiers(kAll, own), waiting_events(kAll, own), groups(kAll, own) {}

    Quota identifiers;
    Quota waiting_events;  // queued in the agent, because sockets have no room
    Quota groups;
  };
  Shares& shares() { return shares_; }
  GoneClients& gone_clients() { return gone_clients_; }
  EndedSlots& ended_slots() { return ended_slots_; }
  const EndedSlots& ended_slots() const { return ended_slots_; }

  const GsiPort& gsi() const { return gsi_; }
  GsiPort& gsi() { return gsi_; }
  std::shared_ptr<ConnectionTrace> make_trace(const CmClientHost& client);
  ConnectionTraces& traces() { return traces_; }
  uint32_t next_listed_number() { return ++listed_number_ != 0 ? listed_number_ : ++listed_number_; }

 private:
  // cm::Sink
  void send(const cm::Mad& mad, const roce::Path& path) override;
  void on_timer_set(uid_t user, TimePoint when) override;
  // Delivers a datagram to this host itself while QP1 is not open. Drops a datagram for another host.
  void loop_back(const cm::Mad& mad, const roce::Path& path);
  // Returns whether a datagram's source is an address of this host. If so, the agent must have sent it.
  bool is_of_this_host(const roce::Path& path) const;
  // Passes a message that came at `came` to the manager. Keeps it if its listener or connection is missing.
  void receive(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint now);
  void on_mad(ConstBytes mad, const cm::Arrival& arrival);
  void answer_early_messages();
  void receive_early_messages(uid_t user, std::function<bool(const EarlyMessages::Message&)> counts);
  void finish_round();
  void on_timer(uid_t user);
  void end_claims_at(TimePoint when);

  EventLoop& loop_;
  const uint16_t udp_port_;
  AgentHost& agent_;
  Random random_;
  Quota channels_;
  Shares shares_;
  LinkDirectory links_;
  PortLimitsReader port_limits_;
  Ledger ledger_;
  std::map<uint16_t, PortSpace> port_spaces_;
  Claims claims_{port_spaces_, ledger_};
  std::optional<RouteQuery> routes_;
  std::optional<Neighbours> neighbours_;
  GsiPort gsi_;
  OwnMessages own_messages_;
  PeerEvents peer_events_{*this};
  cm::Manager manager_;
  ConnectionTraces traces_;
  Clients clients_;
  uint64_t last_client_ = 0;
  CmTally tally_;
  uint32_t listed_number_ = 0;
  std::map<uid_t, Usage> usage_;
  EarlyMessages early_;
  EndedListeners ended_listeners_;
  EndedSlots ended_slots_{*this};
  TimePoint returns_until_{};
  TimePoint last_return_{};  // maximum of returns_until_ for expect_one_return()
  DeadlineTimer early_timer_{loop_, [this] { answer_early_messages(); }};
  EventLoop::QueuedTask settle_{loop_, [this] { finish_round(); }};
  std::map<uid_t, DeadlineTimer> timers_;  // for the connections of each user
  GoneClients gone_clients_;               // destroyed first: the clients use the members above
};

// Returns the service's counters, and how many identifiers and connections are in each state.
protocol::CmStatus status_of(CmService& service);

// Lists the identifiers of one user's programs or of all programs. Works in steps, because a program may have
// 131,072 identifiers. Identifiers that come or go meanwhile may be listed or not. Lists at most as many as
// there are at the start, and at most protocol::kMaxCmIdRecords.
class CmIdListing {
 public:
  // `user`: lists only this user's identifiers; nullopt: all. REQUIRES: the service outlives this object
  CmIdListing(const CmService& service, std::optional<uid_t> user);

  // Returns the next records. Looks at up to `most` identifiers and clients.
  std::vector<protocol::CmIdRecord> next(size_t most);
  bool is_done() const { return is_done_; }
  size_t listed() const { return listed_; }
  size_t most() const { return max_; }
  // Returns the current number of identifiers, listed or not.
  size_t there_are() const;

 private:
  const CmService::Clients& clients() const;

  const CmService& service_;
  const std::optional<uid_t> user_;
  const size_t max_;
  uint64_t client_ = 0;   // where to continue
  uint64_t next_id_ = 0;  // of that client; may be larger than any number
  size_t listed_ = 0;
  bool is_done_ = false;
};

}  // namespace verbena::agent
