// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "adapter/engine/input.h"
#include "adapter/engine/shard.h"
#include "adapter/queues/shared_receive_queue_table.h"
#include "adapter/transport/queue_owners.h"
#include "adapter/xrc/owner_peer.h"
#include "adapter/xrc/target_peer.h"
#include "base/own_fd.h"
#include "control/model/slot_messages.h"

namespace verbena::engine {

// The other processes on this host that share XRC domains with this one. An XRC target QP of one process may
// deliver to shared receive queues of another. DomainPeers forwards requests for queues of other processes to
// them, and takes requests for queues of this process. The agent knows which processes have a domain open,
// and makes a link between two of them when it is first needed.
class DomainPeers final : public Input, public transport::QueueOwners, private PeerKeeper {
 public:
  // Asks the agent for a link to a process that owns queues. Never blocks; the agent's answer is passed to
  // connect().
  using Ask = std::function<void(const Peer::Key&)>;

  // `queues` is the table of this process's shared receive queues for XRC.
  DomainPeers(Shard& shard, memory::KeyTable& keys, const queues::SharedReceiveQueueTable& queues, Ask ask);
  ~DomainPeers() override;

  // ---- any thread that holds no shard's lock

  // Takes a link that the agent has made, or the agent's answer that it makes none.
  void connect(control::DomainPeer news);
  // Closes the links that belong to a domain. Called when this process closes the domain.
  void leave(uint64_t domain);

  // ---- with the shard's lock held (Shard::exclusively())

  // Removes all references to a queue of this process. Called when the queue is destroyed.
  void forget(const queues::SharedReceiveQueue& queue);

  // QueueOwners
  uint32_t new_run() override;
  bool pass(const transport::ForwardedRequest& request) override;
  void end(const transport::QueuePair& target) override;

  // Input
  int fd() const override { return poll_set_.get(); }
  uint32_t receive(uint32_t budget, TimePoint now) override;
  bool is_whole() const override { return poll_set_.is_ours(); }
  void abandon() override;

 private:
  struct Care : Alarm {
    explicit Care(std::function<void()> what) : action(std::move(what)) {}
    void on_alarm() override { action(); }
    const std::function<void()> action;
    bool is_set = false;
  };

  PeerKeeper& keeper() { return *this; }
  void needs_care() override;
  void take_care();
  void set(Care& care, Duration after);
  void ask(OwnerPeer& owner);
  void ask_again();
  OwnerPeer* find_owner(const Peer::Key& key);
  void connect_owner(const Peer::Key& key, ForeignSocket socket, int error);
  void connect_target(const Peer::Key& key, ForeignSocket socket);
  bool listen_to(Peer& peer);
  void remove_lost();
  void tell_gone(const Peer::Key& owner, roce::NakCode code);
  template <class Visit>
  void for_each_peer(Visit visit);

  Shard& shard_;
  memory::KeyTable& keys_;
  const queues::SharedReceiveQueueTable& queues_;
  const Ask ask_;
  OwnFd poll_set_;  // epoll set of the links' sockets; made for the first link
  bool is_input_ = false;
  uint32_t last_run_ = 0;
  std::map<Peer::Key, std::unique_ptr<OwnerPeer>> owners_;
  std::map<Peer::Key, std::unique_ptr<TargetPeer>> targets_;
  Care flushing_;
  Care asking_;
};

}  // namespace verbena::engine
