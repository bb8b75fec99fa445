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

// Told when the agent's links have changed: netdevs, addresses, states. Called in the engine thread.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  virtual void on_links(const std::vector<control::Link>& before, const std::vector<control::Link>& now) = 0;
  ListHook link_hook;
};

// What runs in this process while it has a device open: the memory keys, which are the process's, and its
// shards, each with an engine thread.
//
// QPs are dealt out by thread: the QPs that one thread makes are on one shard, so that a thread which uses
// what it has made shares no lock with another. (A QP whose completion queue is filled by a shard already
// goes there instead, so that polling that queue drives one shard only. The adapter sees to that.) The
// processor of a thread says less, as threads move, and are often made and set up by one. Each further thread
// gets a shard without QPs, one newly started, or the one with the fewest. How many there may be at most:
// VERBENA_SHARDS, see shard_dealing.h. If the agent has no further slot, those that run are shared.
//
// The first shard is the home of all that is one for the process: what the agent says, XRC targets and their
// queues (other processes know them by its slot), tag matching, raw Ethernet.
//
// Thread-safe.
class Engine {
 public:
  // The process's engine: started if there is none, stopped when the last reference goes.
  static Result<std::shared_ptr<Engine>> acquire();
  // One that is not the process's, over a client of its own: for tests, whose agent may be a fake one. A fork
  // does not know of it.
  static Result<std::shared_ptr<Engine>> start_with(std::shared_ptr<control::Client> client,
                                                    net::PortFactory open_ports = net::open_ports);
  // What makes the ports of the engine that acquire() starts next; net::open_ports() if nothing is set. For
  // tests and benches, which give simulated ports. REQUIRES: no engine runs
  static void set_port_factory(net::PortFactory open_ports);
  // The links there are, asked of the agent.
  static Result<std::vector<control::Link>> list_links();

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Shard& home() { return shards_[0]->shard(); }
  // The one for a QP that the calling thread makes.
  Shard& shard_for_new_qp();
  // What all shards may touch.
  memory::KeyTable& keys() { return keys_; }
  transport::IncastMeter& incast() { return incast_; }
  // The groups that QPs of a shard are attached to.
  MulticastGroups& multicast(const Shard& shard) { return running(shard).multicast(); }
  DomainPeers& domain_peers() { return *domain_peers_; }
  // A QP of the shard has been connected, and its peer may send as soon as the program says so. Waits until
  // the engine thread runs, which answers while the program does not poll. Then waits a moment for the
  // shared-memory route to the peer.
  void await_readiness(const Shard& shard, const roce::Path& path, roce::Qpn destination);
  // Rights have been taken away, of a QP: nobody goes by what it had. Not inside Shard::exclusively().
  void await_direct_accesses() {
    if (board_ != nullptr) board_->await_users();
  }
  // The process's shared receive queues for XRC. Inside home().exclusively().
  queues::SharedReceiveQueueTable& xrc_queues() { return *xrc_queues_; }

  // Joins the XRC domain of a file, which other processes may have open, under a number of our own; see
  // control::Client.
  Result<void> open_domain(uint64_t domain, const control::Client::DomainFile& file) {
    return client_->open_domain(domain, home().slot(), file);
  }
  void close_domain(uint64_t domain);

  // Whether a QP that is made now can reach other hosts: the agent has UDP port 4791.
  bool reaches_wire() const { return no_wire_reason().empty() || wire_came_.load(std::memory_order_acquire); }
  // False: the shard has no wire, and another has one, or can have.
  bool may_take_qps(const Shard& shard) { return !reaches_wire() || running(shard).no_wire_reason().empty(); }
  // Why the first shard's packets go by memory alone; empty when there is a wire, too.
  const std::string& no_wire_reason() const { return shards_[0]->no_wire_reason(); }
  // We are in a child after fork(), and all this was its parent's.
  bool inherited() const { return inherited_; }
  // The application has closed descriptors that are ours, or given their numbers to other files: this engine
  // touches none any more, its links are gone, and the next that is acquired is another. Asks.
  bool is_lost();

  // The newest known state of a link; nullptr when it is gone.
  std::shared_ptr<const control::Link> link(uint32_t device_index) const;

  // All shards take what has come by now (Shard::settle()).
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
  const std::unique_ptr<OwnBoard> board_;  // null: others have no direct access to our memory
  memory::KeyTable keys_;
  transport::IncastMeter incast_;

  mutable SpinLock links_lock_;
  std::vector<std::shared_ptr<const control::Link>> links_;
  bool lacked_wire_ = false;  // the links that were known last
  // The agent had no wire when the first shard was made, and has one now.
  std::atomic<bool> wire_came_{false};
  SpinLock listeners_lock_;
  IntrusiveList<LinkListener, &LinkListener::link_hook> listeners_;

  // Filled from the front; those that count are there until the end.
  std::array<std::unique_ptr<RunningShard>, kMaxShards> shards_;
  std::atomic<size_t> started_{0};
  std::optional<queues::SharedReceiveQueueTable> xrc_queues_;  // from start() on
  std::unique_ptr<DomainPeers> domain_peers_;
  size_t locked_shards_ = 0;  // by the thread that forks

  // Of slots whose shard does not count yet.
  std::mutex captures_mutex_;
  std::vector<control::SlotCapture> early_captures_;

  std::mutex loss_mutex_;
  std::atomic<bool> lost_{false};
  std::thread undertaker_;  // of a lost engine

  std::atomic<bool> traces_details_{false};

  std::mutex dealing_;  // held while the agent is asked for a slot
  std::array<uint32_t, kMaxShards> threads_{};
  TimePoint next_start_{};
};

}  // namespace verbena::engine
