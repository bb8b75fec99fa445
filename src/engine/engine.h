// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "agent_client/client.h"
#include "base/intrusive_list.h"
#include "base/result.h"
#include "base/spin_lock.h"
#include "engine/domain_peers.h"
#include "engine/engine_thread.h"
#include "engine/multicast_groups.h"
#include "engine/shard.h"
#include "memory/key_table.h"

namespace verbena::engine {

// Told when the agent's links have changed: netdevs, addresses, states. Called in the engine thread.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  virtual void on_links(const std::vector<agent_client::Link>& before,
                        const std::vector<agent_client::Link>& now) = 0;
  ListHook link_hook;
};

// What runs in this process while it has a device open: its shards, each with an engine thread. One shard
// now; the QPs of a device are dealt out among them.
//
// Thread-safe.
class Engine {
 public:
  // The process's engine: started if there is none, stopped when the last reference goes.
  static Result<std::shared_ptr<Engine>> acquire();
  // The links there are, asked of the agent.
  static Result<std::vector<agent_client::Link>> list_links();

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Shard& shard() { return *shard_; }
  // What all shards may touch.
  memory::KeyTable& keys() { return keys_; }
  MulticastGroups& multicast() { return *multicast_; }
  DomainPeers& domain_peers() { return *domain_peers_; }

  // Joins the XRC domain of a file, which other processes may have open, under a number of our own; see
  // agent_client::Client.
  Result<void> open_domain(uint64_t domain, const agent_client::Client::DomainFile& file) {
    return client_->open_domain(domain, slot_, file);
  }
  void close_domain(uint64_t domain);

  // Why packets can neither come nor go; empty when they can.
  const std::string& no_wire_reason() const { return no_wire_reason_; }
  // We are in a child after fork(), and all this was its parent's.
  bool inherited() const { return inherited_; }

  // The newest known state of a link; nullptr when it is gone.
  std::shared_ptr<const agent_client::Link> link(uint32_t device_index) const;

  void subscribe(LinkListener& listener);
  void unsubscribe(LinkListener& listener);

 private:
  struct StatusMapping;
  friend struct Process;

  explicit Engine(std::shared_ptr<agent_client::Client> client);
  Result<void> start();
  MulticastGroups::Surroundings surroundings();
  void set_links(std::vector<agent_client::Link> links);
  void on_control();
  bool before_fork();
  void after_fork_in_parent();
  void abandon();

  const std::shared_ptr<agent_client::Client> client_;
  uint32_t slot_ = 0;
  bool has_slot_ = false;
  bool inherited_ = false;
  std::string no_wire_reason_;
  memory::KeyTable keys_;
  std::unique_ptr<StatusMapping> status_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<MulticastGroups> multicast_;
  std::unique_ptr<DomainPeers> domain_peers_;

  mutable SpinLock links_lock_;
  std::vector<std::shared_ptr<const agent_client::Link>> links_;
  SpinLock listeners_lock_;
  IntrusiveList<LinkListener, &LinkListener::link_hook> listeners_;

  std::unique_ptr<EngineThread> thread_;  // last: stops first
};

}  // namespace verbena::engine
