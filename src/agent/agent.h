// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "agent/cm/service.h"
#include "agent/counter_collector.h"
#include "agent/domain_table.h"
#include "agent/event_loop.h"
#include "agent/link_table.h"
#include "agent/netlink_monitor.h"
#include "agent/session.h"
#include "agent/slot_table.h"
#include "agent/state_writer.h"
#include "agent/vault.h"
#include "agent/wire.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "roce/packet.h"

namespace verbena::agent {

struct AgentOptions {
  // Ends after this long with nobody connected and nothing held that would be lost; none: never.
  std::optional<Duration> idle_timeout = std::chrono::seconds(5);
  uint16_t port = roce::kUdpPort;
};

// The daemon of a network namespace: its links, its UDP port and the slots of it. Everything happens on the
// thread that calls run().
class Agent final : public SessionHost {
 public:
  // Takes the name under which clients look for an agent of this user: from then on there is no other.
  // EADDRINUSE: there is one.
  static Result<UniqueFd> take_name();

  Agent(UniqueFd name, const AgentOptions& options);
  ~Agent() override;

  // Learns what there is, and begins to listen.
  Result<void> start();
  void run() { loop_.run(); }
  // From any thread.
  void stop() { loop_.stop(); }
  EventLoop& loop() { return loop_; }

 private:
  // SessionHost
  EventLoop& event_loop() override { return loop_; }
  bool ready_for_clients() override { return !awaiting_survivors_; }
  void offer_vault(UniqueFd vault) override;
  int vault_for_clients() override { return vault_.client_end(); }
  int link_file() override { return link_file_.get(); }
  void greeted() override;
  void refused_version(pid_t pid, uint16_t version) override {
    refused_ = {refused_.count + 1, pid, version};
  }
  RefusedPrograms refused_programs() override { return refused_; }
  std::string no_wire_reason() override;
  Result<LentSlot> lend_slot(const Borrower& borrower) override;
  Result<void> keep_slot(uint32_t index, const Borrower& borrower) override;
  Result<void> take_back_slot(uint32_t index, uint64_t session) override;
  std::optional<LentSlot> find_lent_slot(uint32_t from) override;
  agent_client::DeviceCounters device_counters(uint32_t device_index) override;
  Result<UniqueFd> join_group(uint32_t device_index, const roce::Address& group) override;
  Result<void> open_domain(const DomainTable::Member& member, int file, uint32_t device_index,
                           DomainTable::Mode mode) override;
  Result<void> close_domain(uint64_t session, uint64_t name) override;
  void ask_for_peer(uint64_t session, uint64_t name, uint32_t slot) override;
  agent_client::AdminResult<void> add_link(std::string_view name, std::string_view netdev) override;
  agent_client::AdminResult<void> delete_link(std::string_view name) override;
  CmService& connection_management() override { return cm_; }
  bool is_qpn_of(uint32_t qpn, uid_t user) override;
  void close_session(uint64_t id) override;

  void accept_clients();
  bool accept_one();
  void pause_listening();
  void await_survivors();
  void end_wait();
  void watch_orphans();
  void open_gsi();
  void sweep_later();
  void publish_links();
  void consider_loopback();
  static agent_client::SlotStatus numbers_of(const LentSlot& lent);
  void collect_counters();
  void show_counters();
  void collect_counters_regularly();
  void on_counter_readers();
  void count_downed(const std::vector<agent_client::Link>& before,
                    const std::vector<agent_client::Link>& now);
  void record_slot(uint32_t index);
  void rewrite_vault();
  void consider_keeper();
  Session* find_keeper() const;
  void consider_idle();
  void end_if_idle();
  bool is_idle() const;

  EventLoop loop_;
  AgentOptions options_;
  UniqueFd listener_;
  LinkTable links_;
  NetlinkMonitor netlink_;
  Wire wire_;
  SlotTable slots_;
  DomainTable domains_;
  CmService cm_;
  Vault vault_;
  UniqueFd link_file_;
  bool published_ = false;  // the link file says what the table says
  UniqueFd state_lock_;
  std::optional<StateWriter> state_;
  CounterCollector counters_;
  TimePoint counters_collected_{};
  std::optional<EventLoop::TimerId> collecting_;  // the next time
  TimePoint keeper_retry_{};
  bool awaiting_survivors_ = false;
  bool anyone_greeted_ = false;
  RefusedPrograms refused_;
  std::optional<EventLoop::TimerId> wait_timer_;
  std::optional<EventLoop::TimerId> idle_timer_;
  TimePoint wire_retry_{};
  uint64_t next_session_ = 1;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::set<uint64_t> loopback_viewers_;   // sessions that have seen the link that loopback got by itself
  std::map<uint32_t, UniqueFd> orphans_;  // processes that hold a slot and did not come back yet, by slot
};

}  // namespace verbena::agent
