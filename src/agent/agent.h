// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/links/link_publisher.h"
#include "agent/links/link_table.h"
#include "agent/links/netlink_monitor.h"
#include "agent/mad/discovery.h"
#include "agent/mad/dispatcher.h"
#include "agent/sessions/client_sockets.h"
#include "agent/sessions/client_table.h"
#include "agent/sessions/refused_programs.h"
#include "agent/sessions/served_users.h"
#include "agent/sessions/session.h"
#include "agent/slots/domain_table.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "agent/status/kept_traces.h"
#include "agent/status/state_sweeper.h"
#include "agent/status/state_writer.h"
#include "agent/takeover/agent_name.h"
#include "agent/takeover/stopped_processes.h"
#include "agent/takeover/takeover.h"
#include "agent/takeover/takeover_record.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "wire/roce/packet.h"

namespace verbena::agent {

struct AgentOptions {
  // Ends after this long with no program connected and nothing held that would be lost; none: never.
  std::optional<Duration> idle_timeout = std::chrono::seconds(5);
  uint16_t port = roce::kUdpPort;
  // The only user whom root's agent serves besides root; none: all.
  std::optional<uid_t> serve_only{};
  // Looks for the agents of other hosts, and lets them know of us.
  bool discovery = true;
};

// The daemon of a network namespace: its links, its UDP port and the slots of it. Puts the parts together,
// each of which is a class of its own, and decides when a keeper is wanted and when to end. Everything
// happens on the thread that calls run().
class Agent {
 public:
  Agent(AgentName name, const AgentOptions& options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Learns what there is, and begins to listen.
  Result<void> start();
  void run() { loop_.run(); }
  // From any thread.
  void stop() { loop_.stop(); }
  EventLoop& loop() { return loop_; }

 private:
  CmService::Host cm_surroundings();
  MadDispatcher::Surroundings mad_surroundings();
  Discovery::Surroundings discovery_surroundings();
  LinkPublisher::Surroundings link_surroundings();
  SlotLeases::Surroundings slot_surroundings();
  StoppedProcesses::Surroundings stopped_surroundings();
  void slot_changed(uint32_t slot);
  ClientTable::Surroundings client_surroundings();

  // Later, where it cannot be made now: a file system may be full.
  void open_state_directory();
  void on_settled();
  void on_wire();
  // Looks for the wire again and again while there is none.
  void watch_port();
  void on_links(const std::vector<control::Link>& before);
  void on_client_gone(uint64_t session);
  void open_gsi();

  bool wants_keeper() const;
  void consider_keeper();
  void consider_idle();
  void end_if_idle();
  bool is_idle() const;

  // Of the file system, which may be slow: destroyed last, when nobody waits for anything of ours any more.
  UniqueFd state_lock_;
  UniqueFd state_mark_;
  std::optional<StateWriter> state_;
  std::optional<StateSweeper> sweeper_;

  EventLoop loop_;
  const AgentOptions options_;
  ServedUsers served_;
  AgentName name_;
  ClientSockets client_sockets_;
  LinkTable link_table_;
  NetlinkMonitor netlink_;
  Wire wire_;
  SlotTable slot_table_;
  DomainTable domain_table_;
  TakeoverRecord vault_;
  bool misses_state_directory_ = false;
  KeptTraces kept_traces_;
  CmService cm_;
  LinkPublisher links_;
  CounterPublisher counters_;
  MadDispatcher mads_;
  std::optional<Discovery> discovery_;
  SlotLeases slots_;
  StoppedProcesses stopped_;  // after the sockets that it watches
  Takeover succession_;
  RefusedPrograms refused_;
  Requests requests_;
  const Session::Parts for_sessions_;
  ClientTable clients_;
  // The sessions that are keepers: one, or two for a moment.
  std::map<uint64_t, pid_t> keepers_;
  std::set<uint64_t> mirrors_;  // sessions
  TimePoint keeper_retry_{};
  std::optional<EventLoop::TimerId> idle_timer_;
  bool watches_port_ = false;
};

}  // namespace verbena::agent
