// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "adapter/net/port.h"
#include "agent/cm/service.h"
#include "agent/event_loop.h"
#include "agent/links/link_publisher.h"
#include "agent/links/link_table.h"
#include "agent/mad/dispatcher.h"
#include "agent/sessions/client_sockets.h"
#include "agent/sessions/served_users.h"
#include "agent/sessions/session.h"
#include "agent/slots/domain_table.h"
#include "agent/slots/slot_leases.h"
#include "agent/slots/slot_table.h"
#include "agent/slots/wire.h"
#include "agent/status/counter_publisher.h"
#include "agent/status/kept_traces.h"
#include "agent/takeover/takeover.h"
#include "fuzz/choices.h"
#include "management/cm/messages.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// The agent's surroundings, simulated in this process: time, wire, routes. There is no network, thread or
// netlink. The only real system calls are those on clients' sockets and on memfds.
class Outside {
 public:
  struct Datagram {
    cm::Mad mad;
    roce::Path path;
  };

  static Outside& get();

  // The choices of the current input, which determine the kernel's answers; null between inputs.
  fuzz::Choices* choices = nullptr;
  // Whether this simulation is active: threads run synchronously when started, and `now` is the time.
  bool is_fake = false;
  TimePoint now{std::chrono::hours(1)};
  std::vector<Datagram> sent;  // from QP1
};

inline constexpr uint32_t kOwnInterface = 2;
// Returns a host's address: 10.0.0.1 is the agent's host, 10.0.0.2 another host; 127.0.0.1 is not on the
// wire.
roce::Address host_address(uint8_t last);

// The parts of the agent that clients can reach, without its name, its netlink socket and its process. The
// test creates sessions of arbitrary users.
class AgentWorld : private AgentHost {
 public:
  explicit AgentWorld(bool has_wire);
  ~AgentWorld() override;
  AgentWorld(const AgentWorld&) = delete;
  AgentWorld& operator=(const AgentWorld&) = delete;

  // The client's end of a new session.
  struct Client {
    uint64_t session = 0;
    UniqueFd socket;
  };
  Client connect(uid_t user);
  Session* find(uint64_t session);
  size_t sessions() const { return sessions_.size(); }

  // Runs the event loop until nothing is left to do, without waiting.
  void run();
  void pass(Duration time) { Outside::get().now += time; }
  // Delivers a datagram to QP1.
  void arrive(const cm::Mad& mad, const roce::Path& path);
  // Undoes all changes of links by users.
  void restore_links();

  ClientSockets& sockets() { return sockets_; }
  SlotTable& slots() { return slots_; }
  CmService& connection_management() { return cm_; }
  const std::vector<control::Link>& links() const { return links_.links(); }

 private:
  void end(uint64_t session);

  // AgentHost
  ClientEvents* events_of(uint64_t session) override;
  bool is_orphan(uint32_t qpn) const override { return lease_.orphans().contains(roce::Qpn(qpn).slot()); }
  std::string no_wire_reason() const override { return wire_.no_wire_reason(); }
  void close_session(uint64_t session) override {
    loop_.later([this, session] { end(session); });
  }
  void links_changed(const std::vector<control::Link>& before) override;
  void slot_changed(uint32_t slot) override;
  void lease_ending(const LeasedSlot& slot, bool in_order) override;
  void trace_ended(const ConnectionTrace& trace) override;

  const ServedUsers served_;
  EventLoop loop_{std::chrono::hours(1)};  // handles all users' events in one round
  ClientSockets sockets_;
  LinkTable link_table_;
  Wire wire_;
  SlotTable slots_;
  DomainTable domains_;
  TakeoverRecord takeover_state_;
  KeptTraces kept_traces_{sockets_.closer()};
  CmService cm_;
  LinkPublisher links_;
  CounterPublisher counters_;
  SlotLeases lease_;
  ServedUsers served_before_;
  Takeover takeover_;
  RefusedPrograms refused_;
  Requests requests_;
  const Session::Parts parts_;
  net::PacketHandler* qp1_;
  uint64_t next_session_ = 1;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
};

}  // namespace verbena::agent
