// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/agent_host.h"
#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/links/link_publisher.h"
#include "agent/links/link_table.h"
#include "agent/links/netdev_speeds.h"
#include "agent/links/netlink_monitor.h"
#include "agent/mad/discovery.h"
#include "agent/mad/dispatcher.h"
#include "agent/message_witness.h"
#include "agent/paced_task.h"
#include "agent/sessions/client_sockets.h"
#include "agent/sessions/client_table.h"
#include "agent/sessions/served_users.h"
#include "agent/sessions/session.h"
#include "agent/slots/domain_table.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "agent/status/kept_traces.h"
#include "agent/status/state_sweeper.h"
#include "agent/status/state_tree.h"
#include "agent/takeover/agent_name.h"
#include "agent/takeover/standby_launcher.h"
#include "agent/takeover/stopped_processes.h"
#include "agent/takeover/takeover.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "wire/roce/packet.h"

namespace verbena::agent {

struct AgentOptions {
  // The agent ends after this long without a connected program and without state that would be lost. If
  // nullopt, the agent never ends for being idle.
  std::optional<Duration> idle_timeout = std::chrono::seconds(5);
  uint16_t port = roce::kUdpPort;
  // The only user besides root that root's agent serves (--serve-only). If nullopt, root's agent serves all
  // users.
  std::optional<uid_t> serve_only{};
  // Whether the agent looks for agents of other hosts and announces itself to them.
  bool discovery = true;
};

// The daemon of a network namespace. Owns the namespace's links (RDMA devices), UDP port 4791 and the slots
// (shares of the QP numbers). Constructs and connects the agent's parts, each a class of its own. Decides
// when to start the standby process and when the agent ends. All methods except stop() are called on one
// thread, which also calls run().
class Agent : private AgentHost {
 public:
  Agent(AgentName name, const AgentOptions& options);
  ~Agent() override;

  // Opens netlink and UDP port 4791, begins to take over from a killed agent, then listens for clients. Waits
  // up to 8 s for the state directory's files. Returns the kernel's error if netlink, the takeover state or
  // the clients' sockets fail. It is no error if another process has the port: devices then cannot reach
  // other hosts, and the agent tries again to bind the port.
  Result<void> start();
  void run() { loop_.run(); }
  // Makes run() return. May be called from any thread or signal handler.
  void stop() { loop_.stop(); }
  EventLoop& loop() { return loop_; }

 private:
  // Creates the state directory. Retries later if that fails: a file system may be full.
  void open_state_directory();
  // Publishes the links, and asks for the speeds of netdevs that the kernel has reported.
  void netdevs_changed();
  void on_settled();
  // Tries to bind UDP port 4791 every 500 ms while another process has the port.
  void watch_port();
  void open_gsi();
  void watch_stopped(uint32_t slot);

  // AgentHost
  ClientEvents* events_of(uint64_t session) override;
  bool awaits_programs() const override { return !slots_.orphans().empty(); }
  bool is_orphan(uint32_t qpn) const override { return slots_.orphans().contains(roce::Qpn(qpn).slot()); }
  std::string no_wire_reason() const override { return wire_.no_wire_reason(); }
  bool needs_no_neighbours(uint32_t interface_index) const override {
    return link_table_.needs_no_neighbours(interface_index);
  }
  void session_came(uint64_t session) override;
  void session_greeted(const Session& session) override;
  void session_went(uint64_t session) override;
  void close_session(uint64_t session) override { clients_.close(session); }
  void links_changed(const std::vector<control::Link>& before) override;
  void wire_opened() override;
  void slot_changed(uint32_t slot) override;
  void lease_ending(const LeasedSlot& slot, bool in_order) override;
  void slots_returned() override;
  void orphan_returned() override;
  void others_changed() override;
  void trace_ended(const ConnectionTrace& trace) override;
  void consider_idle() override;

  bool wants_standby() const;
  void consider_standby();
  void end_later(Duration patience);
  void end_if_idle();
  bool is_idle() const;

  // The next four members use the file system, which may be slow. They are destroyed last, when no process
  // waits for the agent any more.
  UniqueFd state_lock_;
  UniqueFd state_mark_;
  std::optional<StateWriter> state_;
  std::jthread sweeper_;

  EventLoop loop_;
  MessageWitness witness_{loop_, [this](Duration excess) { loop_.pardon(excess); }};
  const AgentOptions options_;
  ServedUsers served_;
  AgentName name_;
  ClientSockets client_sockets_;
  LinkTable link_table_;
  NetlinkMonitor netlink_;
  NetdevSpeeds speeds_;
  // Publishes the links. A container with a veth pair causes 9,000 changes of its carrier a second
  // (measured).
  PacedTask netdev_news_{loop_, std::chrono::milliseconds(100), [this] { netdevs_changed(); }};
  Wire wire_;
  SlotTable slot_table_;
  DomainTable domain_table_;
  TakeoverRecord takeover_state_;
  bool misses_state_directory_ = false;
  KeptTraces kept_traces_{client_sockets_.closer()};
  CmService cm_;
  LinkPublisher links_;
  CounterPublisher counters_;
  SlotLeases slots_;
  StoppedProcesses stopped_;  // destroyed before the owners of the sockets that it watches
  Takeover takeover_;
  RefusedPrograms refused_;
  Requests requests_;
  std::optional<Discovery> discovery_;
  const Session::Parts for_sessions_;
  ClientTable clients_;
  StandbyLauncher standby_launcher_;
  // The pid of each standby, by its session. For a moment there may be two standbys: another one is started
  // if the first has not connected within a second.
  std::map<uint64_t, pid_t> standbys_;
  std::set<uint64_t> mirrors_;  // sessions of device mirrors; an agent with no other sessions is idle
  TimePoint standby_retry_{};   // the earliest time to start another standby
  DeadlineTimer standby_timer_{loop_, [this] { consider_standby(); }};
  std::optional<EventLoop::TimerId> idle_timer_;
  bool watches_port_ = false;
};

}  // namespace verbena::agent
