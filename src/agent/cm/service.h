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
// and what is needed to resolve addresses. Carries datagrams and timers to the manager, and keeps messages
// that come too early. Clients (cm/client.h) have the identifiers; what peers do to them is told by
// PeerEvents. Of the agent's thread.
class CmService final : private cm::Sink {
 public:
  struct Host {
    std::function<std::string()> no_wire_reason;  // why there is no wire, when there is none
    // Something was done while there was no client: owes_farewells() may have another answer now.
    std::function<void()> on_quiet;
    // Whether the process that had this QP with a former agent lives and has not come back yet.
    std::function<bool(uint32_t qpn)> is_orphan;
    // Other users have begun to have ports or connections, or have none any more; may be empty.
    std::function<void()> on_others = {};
    // A client has gone, and nothing more happens to its connections; may be empty.
    ConnectionTraces::OnEnd on_trace_end = {};
  };

  CmService(EventLoop& loop, uint16_t udp_port, Host host);
  ~CmService() override;

  // Slot 0's socket is there: receives from it. Does nothing when it does already.
  void open_wire(int slot_socket);
  bool has_wire() const { return gsi_.is_open(); }
  std::string no_wire_reason() const { return host_.no_wire_reason(); }
  // Whether datagrams get there: without a wire, to this host only.
  bool reaches(const roce::Path& path) const;
  // The agent ends, but its clients may go on: their connections stay, for the next agent to restore. Nothing
  // is sent any more.
  void abandon() {
    gone_clients_.clear_all();
    gsi_.flush();
    gsi_.close();
    ledger_.freeze();
  }
  // @param failed_over device indexes of bonds whose other port has taken over
  void links_changed(const std::vector<control::Link>& links, std::span<const uint32_t> failed_over);
  // A former agent was killed, and its clients bring back what they have. Until then no peer is told that a
  // connection or a listener is not there: what is said to them is kept, or has to be said again.
  void expect_returns(TimePoint until);
  // A client may be about to come back, which is waited for until then; but not for long after
  // expect_returns() says: a user who has many clients would delay the answers to all peers.
  void expect_one_return(TimePoint until);
  TimePoint returns_until() const { return returns_until_; }
  bool expects_returns() const { return MonotonicClock::now() < returns_until_; }
  // What the clients of a former agent had, by its ledger; -1: it kept none.
  void take_over(int ledger);
  // For the next agent.
  const Ledger& ledger() const { return ledger_; }
  // Whether the process that had this QP with a former agent lives and has not come back yet.
  bool is_orphan(uint32_t qpn) const { return host_.is_orphan(qpn); }
  // Peers are owed messages by identifiers that are gone, or going: the agent must not end yet. What only
  // waits for TIMEWAIT to pass does not count.
  bool owes_farewells() const;

  // Clients by their numbers, in the order of their coming.
  using Clients = std::map<uint64_t, CmClient*>;

  // For clients.
  void join(CmClient& client);
  void leave(CmClient& client);
  EventLoop& loop() { return loop_; }
  // After an operation of the manager, settle() is called.
  cm::Manager& manager() { return manager_; }
  const cm::Manager& manager() const { return manager_; }
  void settle();
  // EPROTONOSUPPORT: there is no such port space.
  Result<PortSpace*> port_space(uint16_t number);
  PortLimits& port_limits() { return port_limits_; }
  const LinkDirectory& links() const { return links_; }
  Neighbours& neighbours() { return *neighbours_; }
  RouteQuery& routes() { return *routes_; }
  bool can_resolve() const { return routes_.has_value(); }
  Random& random() { return random_; }
  Claims& claims() { return claims_; }
  // The ledger is to say what the identifier's port, or its connection, is now.
  void note_port(CmIdentifier& id);
  void note_connection(CmIdentifier& id);
  void release_port(CmIdentifier& id);
  void release_connection(CmIdentifier& id);
  // A program listens now, or a connection was restored: a message for it may have come already.
  void look_again();
  // A program that runs on has ended a listener.
  void listener_ended(const CmIdentifier& id);
  // Whether a listener that is not there may still come to a port, for a request that came so long ago.
  bool may_listen_soon(uint16_t port, Duration waited) const;
  // What a user's programs have together.
  struct Usage {
    size_t identifiers = 0;
    size_t waiting_events = 0;  // that they do not read
    size_t groups = 0;
    Clients clients{};  // that have not gone
    CmTally tally{};    // of these
  };
  Usage& usage_of(uid_t user) { return usage_[user]; }
  const Usage* find_usage(uid_t user) const;
  // Clients that have not gone.
  const Clients& clients() const { return clients_; }
  CmTally& tally() { return tally_; }
  const CmTally& tally() const { return tally_; }
  // Event channels; each is a descriptor.
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
  // Without a wire: the datagram comes to ourselves, if it is for this host.
  void loop_back(const cm::Mad& mad, const roce::Path& path);
  // Whether a datagram comes from an address of this host, and so must be one of ours.
  bool is_of_this_host(const roce::Path& path) const;
  // A message for what is not there yet is kept.
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
  GoneClients gone_clients_;  // after all that they have something of
};

}  // namespace verbena::agent
