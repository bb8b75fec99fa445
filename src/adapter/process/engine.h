// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "adapter/engine/multicast_groups.h"
#include "adapter/engine/running_shard.h"
#include "adapter/engine/shard.h"
#include "adapter/engine/shard_dealing.h"
#include "adapter/memory/key_table.h"
#include "adapter/net/port_factory.h"
#include "adapter/queues/shared_receive_queue_table.h"
#include "adapter/shm/own_board.h"
#include "adapter/xrc/domain_peers.h"
#include "base/intrusive_list.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "control/client/client.h"

namespace verbena::engine {

// Notified when the agent's links have changed: netdevs, addresses, states. Called in the engine thread;
// when the engine is lost (Engine::is_lost()), in a thread of its own.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  virtual void on_links(const std::vector<control::Link>& before, const std::vector<control::Link>& now) = 0;
  ListHook link_hook;
};

// The engine of a process that has a device open: the process's memory keys, and its shards, each with an
// engine thread.
//
// QPs are distributed by thread: the QPs that one thread creates are on one shard, so that threads which use
// their own QPs share no lock. (If a shard already fills a QP's completion queue, the adapter puts the QP
// there instead, so that polling that queue makes progress on one shard only.) The CPU of a thread is no
// criterion, as threads move, and often start on one CPU. Each further thread gets a shard without QPs, a
// newly started one, or the one with the fewest QPs. VERBENA_SHARDS limits the number of shards, see
// shard_dealing.h. If the agent has no further slot, the running shards are shared.
//
// The first shard, the home, has everything that exists once per process: the agent's events, XRC targets and
// their queues (other processes know them by its slot), tag matching, raw Ethernet.
//
// Thread-safe.
class Engine {
 public:
  // Returns the process's engine, which is started if there is none, and stops when the last reference goes.
  static Result<std::shared_ptr<Engine>> acquire();
  // Starts an engine over the given client, for tests, whose agent may be a fake. It is not the process's
  // engine: acquire() does not return it, and the handlers of fork() do not cover it.
  static Result<std::shared_ptr<Engine>> start_with(std::shared_ptr<control::Client> client,
                                                    net::PortFactory open_ports = net::open_ports);
  // Sets the factory that makes the ports of the engine that acquire() starts next; by default
  // net::open_ports(). Tests and benchmarks use it for simulated ports. REQUIRES: no engine runs
  static void set_port_factory(net::PortFactory open_ports);
  // Asks the agent for its links.
  static Result<std::vector<control::Link>> list_links();

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Shard& home() { return shards_[0]->shard(); }
  // The shard for a QP that the calling thread creates.
  Shard& shard_for_new_qp();
  // Shared by all shards.
  memory::KeyTable& keys() { return keys_; }
  transport::IncastMeter& incast() { return incast_; }
  // The multicast groups to which QPs of a shard are attached.
  MulticastGroups& multicast(const Shard& shard) { return running(shard).multicast(); }
  DomainPeers& domain_peers() { return *domain_peers_; }
  // To be called when a QP of the shard is connected and its peer may soon send. Waits until the engine
  // thread runs, which answers while the program does not poll. Then waits a moment for the shared-memory
  // route to the peer.
  void await_readiness(const Shard& shard, const roce::Path& path, roce::Qpn destination);
  // Waits until no other process is in the middle of an access by rights that a QP had until now. Not inside
  // Shard::exclusively().
  void await_direct_accesses() {
    if (board_ != nullptr) board_->await_users();
  }
  // The process's shared receive queues for XRC. Inside home().exclusively().
  queues::SharedReceiveQueueTable& xrc_queues() { return *xrc_queues_; }

  // Joins the XRC domain of a file, which other processes may have open. `domain` is this process's number
  // for it; see control::Client.
  Result<void> open_domain(uint64_t domain, const control::Client::DomainFile& file) {
    return client_->open_domain(domain, home().slot(), file);
  }
  void close_domain(uint64_t domain);

  // Whether a new QP can reach other hosts: the agent has UDP port 4791.
  bool reaches_wire() const { return no_wire_reason().empty() || wire_came_.load(std::memory_order_acquire); }
  // Whether new QPs may go to the shard. False: the shard has no wire, and another shard has one or can have
  // one.
  bool may_take_qps(const Shard& shard) { return !reaches_wire() || running(shard).no_wire_reason().empty(); }
  // Why the first shard reaches peers by shared memory only; empty when it has a wire, too.
  const std::string& no_wire_reason() const { return shards_[0]->no_wire_reason(); }
  // Whether this process is a child after fork() that inherited the engine.
  bool inherited() const { return inherited_; }
  // Checks whether the application has closed descriptors of the engine, or given their numbers to other
  // files. A lost engine touches no descriptor any more, its links are gone, and acquire() starts another
  // one.
  bool is_lost();

  // The newest known state of a link; nullptr when it is gone.
  std::shared_ptr<const control::Link> link(uint32_t device_index) const;

  // Makes all shards take the packets that have arrived by now (Shard::settle()).
  void settle();

  void subscribe(LinkListener& listener);
  void unsubscribe(LinkListener& listener);

 private:
  friend struct Process;

  Engine(std::shared_ptr<control::Client> client, net::PortFactory open_ports);
  Result<void> start();
  RunningShard::Surroundings surroundings();
  void set_links(std::vector<control::Link> links);
  void on_control();
  void connect(control::SlotChannel news);
  void capture(control::SlotCapture news);
  void capture_early(RunningShard& shard);
  void trace_details(bool on);
  void tell_addresses(RunningShard& shard) const;
  Shard& deal_shard();
  size_t deal_among(std::span<const size_t> candidates, bool may_start);
  bool start_another();
  RunningShard& running(const Shard& shard);
  template <class Visit>
  void for_each(Visit visit) {
    const size_t count = started_.load(std::memory_order_acquire);
    for (size_t i = 0; i < count; ++i) visit(*shards_[i]);
  }
  bool before_fork();
  bool lock_shards();
  void unlock_shards();
  void after_fork_in_parent();
  void abandon();
  void on_loss();
  void end_links();

  const std::shared_ptr<control::Client> client_;
  const net::PortFactory open_ports_;
  const uint64_t id_;
  const size_t max_;
  std::atomic<bool> inherited_{false};
  const std::unique_ptr<OwnBoard> board_;  // export table; null: no direct access by other processes
  memory::KeyTable keys_;
  transport::IncastMeter incast_;

  mutable SpinLock links_lock_;
  std::vector<std::shared_ptr<const control::Link>> links_;
  bool lacked_wire_ = false;  // according to the last known links
  // Whether the agent has the wire now, and had none when the first shard was made.
  std::atomic<bool> wire_came_{false};
  SpinLock listeners_lock_;
  IntrusiveList<LinkListener, &LinkListener::link_hook> listeners_;

  // Filled from the front. The first `started_` shards stay until the end.
  std::array<std::unique_ptr<RunningShard>, kMaxShards> shards_;
  std::atomic<size_t> started_{0};
  std::optional<queues::SharedReceiveQueueTable> xrc_queues_;  // made by start()
  std::unique_ptr<DomainPeers> domain_peers_;
  size_t locked_shards_ = 0;  // by the thread that forks

  // Captures of slots whose shard is not counted in started_ yet.
  std::mutex captures_mutex_;
  std::vector<control::SlotCapture> early_captures_;

  std::mutex loss_mutex_;
  std::atomic<bool> lost_{false};
  std::thread undertaker_;  // ends the links of a lost engine

  std::atomic<bool> traces_details_{false};

  std::mutex dealing_;  // held while the agent is asked for a slot
  std::array<uint32_t, kMaxShards> threads_{};
  TimePoint next_start_{};
};

}  // namespace verbena::engine
