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
#include "adapter/net/port.h"
#include "adapter/queues/shared_receive_queue.h"
#include "adapter/shm/own_board.h"
#include "adapter/xrc/domain_peers.h"
#include "base/intrusive_list.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "control/client/client.h"

namespace verbena::engine {

// Is notified when the agent's links have changed: netdevs, addresses or states. on_links() gets the links
// before and after the change. The engine thread of the first shard calls on_links(). When the engine is lost
// (Engine::is_lost()), a separate thread calls it.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  virtual void on_links(const std::vector<control::Link>& before, const std::vector<control::Link>& now) = 0;
  ListHook link_hook;
};

// The engine of a process that has a device open: the process's memory keys and its shards. Each shard has an
// engine thread.
//
// QPs are distributed by thread: all QPs that one thread creates are on one shard, so that threads which use
// their own QPs share no lock. If a shard already fills one of a QP's completion queues, the adapter puts the
// QP on that shard instead. Then polling the queue makes progress on one shard only. The CPU of a thread is
// no criterion, because threads move, and often start on one CPU. Each further thread gets an unused shard,
// else a newly started shard, else the shard with the smallest number of QPs and threads. VERBENA_SHARDS
// limits the number of shards (shard_dealing.h). If the agent has no further slot, threads share the running
// shards.
//
// The first shard, home(), has everything that exists once per process: the agent's events, XRC targets and
// their queues, tag matching and raw Ethernet. Other processes know the XRC targets and queues by the slot of
// this shard.
//
// Thread-safe.
class Engine {
 public:
  // Returns the process's engine, and starts one if none runs or the running one is lost. The engine stops
  // when the last reference is released.
  static Result<std::shared_ptr<Engine>> acquire();
  // Starts an engine that uses the given client. Used by acquire(), and by tests, whose agent may be a fake.
  // An engine that a test starts is not the process's engine: acquire() does not return it, and the handlers
  // of fork() do not cover it.
  static Result<std::shared_ptr<Engine>> start_with(std::shared_ptr<control::Client> client,
                                                    net::PortFactory open_ports = net::open_ports);
  // Sets the function that opens the ports of engines that acquire() starts; the default is
  // net::open_ports(). Tests and benchmarks set a function that makes simulated ports. REQUIRES: no engine
  // runs
  static void set_port_factory(net::PortFactory open_ports);
  // Asks the agent for its links. Connects to the agent first if needed, and starts no engine.
  static Result<std::vector<control::Link>> list_links();

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Shard& home() { return shards_[0]->shard(); }
  // Returns the shard for a QP that the calling thread creates. May start a shard, which takes a slot from
  // the agent.
  Shard& shard_for_new_qp();
  // The process's memory keys and its incast meter, which all shards share.
  memory::KeyTable& keys() { return keys_; }
  transport::IncastMeter& incast() { return incast_; }
  // Returns the multicast groups to which QPs of this shard are attached.
  MulticastGroups& multicast(const Shard& shard) { return running(shard).multicast(); }
  DomainPeers& domain_peers() { return *domain_peers_; }
  // Called when a QP of the shard is connected and its peer may soon send. Waits up to 2 s until the shard's
  // engine thread runs, which answers the peer while the program does not poll. Then waits a few milliseconds
  // for the shared-memory route to the peer, if the peer is on this host.
  void await_readiness(const Shard& shard, const roce::Path& path, roce::Qpn destination);
  // Waits until other processes have finished the direct memory accesses that they began with rights of a QP.
  // Called after the QP lost these rights. REQUIRES: the caller holds no shard's lock
  void await_direct_accesses() {
    if (board_ != nullptr) board_->await_users();
  }
  // Returns the process's shared receive queues for XRC. REQUIRES: the caller holds the lock of home()
  // (Shard::exclusively())
  queues::SharedReceiveQueueTable& xrc_queues() { return *xrc_queues_; }

  // Joins the XRC domain of a file, which other processes may have open. `domain` is the number that this
  // process chose for the domain; see control::Client.
  Result<void> open_domain(uint64_t domain, const control::Client::DomainFile& file) {
    return client_->open_domain(domain, home().slot(), file);
  }
  void close_domain(uint64_t domain);

  // Returns whether a new QP can reach other hosts, because the agent has UDP port 4791.
  bool reaches_wire() const { return no_wire_reason().empty() || wire_came_.load(std::memory_order_acquire); }
  // Returns whether new QPs may go to the shard. Returns false if the shard reaches no other hosts although
  // another shard, existing or new, could.
  bool may_take_qps(const Shard& shard) { return !reaches_wire() || running(shard).no_wire_reason().empty(); }
  // Returns the reason why the first shard reaches only peers on this host, by shared memory. Empty if the
  // shard can reach other hosts, too.
  const std::string& no_wire_reason() const { return shards_[0]->no_wire_reason(); }
  // Returns whether this process is a child after fork() that inherited the engine.
  bool inherited() const { return inherited_; }
  // Returns whether the engine is lost, because the application has closed its descriptors or reused their
  // numbers for other files. Checks the descriptors now. A lost engine touches no descriptor any more, its
  // links count as deleted, and acquire() starts another engine.
  bool is_lost();

  // Returns the newest known state of the link with this index, or nullptr if there is none.
  std::shared_ptr<const control::Link> link(uint32_t device_index) const;

  // Makes all shards process the packets that have arrived by now (Shard::settle()).
  void settle();

  void subscribe(LinkListener& listener);
  void unsubscribe(LinkListener& listener);

 private:
  friend struct Process;

  Engine(std::shared_ptr<control::Client> client, net::PortFactory open_ports);
  Result<void> start();
  RunningShard::Surroundings surroundings();
  void set_links(std::vector<control::Link> links);
  int on_control();
  void change_links(std::vector<control::Link> now);
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
  const std::unique_ptr<OwnBoard> board_;  // export table; null: no direct access by others
  GuestPlaces guests_;
  memory::KeyTable keys_;
  transport::IncastMeter incast_;

  mutable SpinLock links_lock_;
  std::vector<std::shared_ptr<const control::Link>> links_;
  bool lacked_wire_ = false;  // in the last known links, the agent had no UDP port 4791
  // Whether the agent got UDP port 4791 after the first shard was made without it.
  std::atomic<bool> wire_came_{false};
  SpinLock listeners_lock_;
  IntrusiveList<LinkListener, &LinkListener::link_hook> listeners_;

  // Filled from index 0 up. The first `started_` shards are visible to all threads and live as long as the
  // engine.
  std::array<std::unique_ptr<RunningShard>, kMaxShards> shards_;
  std::atomic<size_t> started_{0};
  std::optional<queues::SharedReceiveQueueTable> xrc_queues_;  // made by start()
  std::unique_ptr<DomainPeers> domain_peers_;
  size_t locked_shards_ = 0;  // how many shards the forking thread has locked

  // Packet captures that the agent has announced for slots whose shard is not counted in started_ yet.
  std::mutex captures_mutex_;
  std::vector<control::SlotCapture> early_captures_;

  std::mutex loss_mutex_;
  std::atomic<bool> lost_{false};
  std::thread undertaker_;  // reports the links of a lost engine as deleted

  std::atomic<bool> traces_details_{false};

  std::mutex dealing_;  // held while a thread gets its shard, which may wait for the agent
  std::array<uint32_t, kMaxShards> threads_{};
  TimePoint next_start_{};
};

}  // namespace verbena::engine
