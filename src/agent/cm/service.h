// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "agent/cm/claims.h"
#include "agent/cm/client_host.h"
#include "agent/cm/connection_trace.h"
#include "agent/cm/early_messages.h"
#include "agent/cm/ended_listeners.h"
#include "agent/cm/ended_slots.h"
#include "agent/cm/gone_clients.h"
#include "agent/cm/gsi_port.h"
#include "agent/cm/identifier.h"
#include "agent/cm/ledger.h"
#include "agent/cm/link_directory.h"
#include "agent/cm/neighbours.h"
#include "agent/cm/own_messages.h"
#include "agent/cm/peer_events.h"
#include "agent/cm/port_limits.h"
#include "agent/cm/port_space.h"
#include "agent/cm/route_query.h"
#include "agent/cm/tally.h"
#include "agent/deadline_timer.h"
#include "agent/event_loop.h"
#include "base/quota.h"
#include "base/random.h"
#include "base/result.h"
#include "control/model/link.h"
#include "management/cm/manager.h"

namespace verbena::agent {

class CmClient;

// Connection management of a network namespace: owns QP1, the connection manager behind it, the port spaces,
// and the means to resolve addresses. Passes datagrams and timeouts to the manager, and keeps messages that
// come too early. Clients (cm/client.h) own the identifiers; PeerEvents reports what peers do to them. For
// the agent's thread.
class CmService final : private cm::Sink {
 public:
  struct Host {
    std::function<std::string()> no_wire_reason;  // empty while there is a wire
    // Called after an operation while there was no client: owes_farewells() may have changed.
    std::function<void()> on_quiet;
    // Whether the process that had this QP with a former agent lives and has not reconnected yet.
    std::function<bool(uint32_t qpn)> is_orphan;
    // Called when users other than the agent's start to have ports or connections, or have none any more; may
    // be empty.
    std::function<void()> on_others = {};
    // Called when a client has gone and its connections have ended; may be empty.
    ConnectionTraces::OnEnd on_trace_end = {};
  };

  CmService(EventLoop& loop, uint16_t udp_port, Host host);
  ~CmService() override;

  // Starts to receive from slot 0's socket, unless it does already.
  void open_wire(int slot_socket);
  bool has_wire() const { return gsi_.is_open(); }
  std::string no_wire_reason() const { return host_.no_wire_reason(); }
  // Whether datagrams reach the destination: without a wire only this host.
  bool reaches(const roce::Path& path) const;
  // Destroys what gone clients have left, sends the staged messages, and then stops sending. Freezes the
  // ledger, so that the next agent can restore the connections of the present clients.
  void abandon() {
    gone_clients_.clear_all();
    gsi_.flush();
    gsi_.close();
    ledger_.freeze();
  }
  // @param failed_over device indexes of bonds of which another port has taken over
  void links_changed(const std::vector<control::Link>& links, std::span<const uint32_t> failed_over);
  // Sets until when clients of a killed agent may restore their objects. Until then no peer is told that a
  // connection or a listener does not exist. These messages are kept, or the peer must repeat them.
  void expect_returns(TimePoint until);
  // A client may be about to come back, which is waited for until then; but not for long after
  // expect_returns() says: a user who has many clients would delay the answers to all peers.
  void expect_one_return(TimePoint until);
  TimePoint returns_until() const { return returns_until_; }
  bool expects_returns() const { return MonotonicClock::now() < returns_until_; }
  // Reserves what clients of a former agent had, by its ledger; -1: it had none.
  void take_over(int ledger);
  // Returns the ledger, for the next agent.
  const Ledger& ledger() const { return ledger_; }
  // Whether the process that had this QP with a former agent lives and has not reconnected yet.
  bool is_orphan(uint32_t qpn) const { return host_.is_orphan(qpn); }
  // Whether messages to peers are outstanding for identifiers that are gone or going: the agent must not end
  // yet. Connections that only wait for the end of TIMEWAIT do not count.
  bool owes_farewells() const;

  // Clients by number, in the order of their arrival.
  using Clients = std::map<uint64_t, CmClient*>;

  // ---- for clients
  void join(CmClient& client);
  void leave(CmClient& client);
  EventLoop& loop() { return loop_; }
  // The connection manager. After an operation, call settle().
  cm::Manager& manager() { return manager_; }
  const cm::Manager& manager() const { return manager_; }
  void settle();
  // Returns the port space. EPROTONOSUPPORT: it does not exist.
  Result<PortSpace*> port_space(uint16_t number);
  PortLimits& port_limits() { return port_limits_; }
  const LinkDirectory& links() const { return links_; }
  Neighbours& neighbours() { return *neighbours_; }
  RouteQuery& routes() { return *routes_; }
  bool can_resolve() const { return routes_.has_value(); }
  Random& random() { return random_; }
  Claims& claims() { return claims_; }
  // Record the identifier's port or connection in the ledger, or update it.
  void note_port(CmIdentifier& id);
  void note_connection(CmIdentifier& id);
  void release_port(CmIdentifier& id);
  void release_connection(CmIdentifier& id);
  // Processes early messages again after a program has started to listen, or a connection was restored.
  void look_again();
  // Notes that a running program has ended a listener.
  void listener_ended(const CmIdentifier& id);
  // Whether a listener may still appear on the port for a request that has waited this long.
  bool may_listen_soon(uint16_t port, Duration waited) const;
  // Resources of all programs of a user.
  struct Usage {
    size_t identifiers = 0;
    size_t waiting_events = 0;  // not read by the programs
    size_t groups = 0;
    Clients clients{};  // without ended ones
    CmTally tally{};    // of `clients`
  };
  Usage& usage_of(uid_t user) { return usage_[user]; }
  const Usage* find_usage(uid_t user) const;
  // Clients without ended ones.
  const Clients& clients() const { return clients_; }
  CmTally& tally() { return tally_; }
  const CmTally& tally() const { return tally_; }
  // Quota of event channels; each takes a descriptor.
  Quota& channels() { return channels_; }
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
  // Delivers a datagram to this host itself while there is no wire. Drops it if it is for another host.
  void loop_back(const cm::Mad& mad, const roce::Path& path);
  // Whether a datagram's source is an address of this host: then it must be one of the agent's own.
  bool is_of_this_host(const roce::Path& path) const;
  // Passes a message to the manager. Keeps it if its listener or connection does not exist yet.
  void receive(ConstBytes mad, const cm::Arrival& arrival, TimePoint came, TimePoint now);
  void on_mad(ConstBytes mad, const cm::Arrival& arrival);
  void answer_early_messages();
  void on_timer();
  void end_claims_at(TimePoint when);

  EventLoop& loop_;
  const uint16_t udp_port_;
  const Host host_;
  Random random_;
  Quota channels_;
  LinkDirectory links_;
  PortLimits port_limits_;
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
  TimePoint last_return_{};  // nothing prolongs that beyond it
  bool looking_again_ = false;
  std::optional<EventLoop::TimerId> early_timer_;
  bool settling_ = false;
  DeadlineTimer timer_{loop_, [this] { on_timer(); }};
  GoneClients gone_clients_;  // destroyed first: the clients use the members above
};

}  // namespace verbena::agent
