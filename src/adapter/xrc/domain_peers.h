// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "adapter/engine/input.h"
#include "adapter/engine/shard.h"
#include "adapter/memory/key_table.h"
#include "adapter/queues/shared_receive_queue.h"
#include "adapter/transport/forwarded_requests.h"
#include "adapter/transport/stand_in.h"
#include "adapter/xrc/peer.h"
#include "base/own_fd.h"
#include "control/model/slot_messages.h"

namespace verbena::engine {

// Another process that owns shared receive queues to which XRC targets of this process deliver. Forwarded
// requests wait here until the agent has made the link to that process.
class OwnerPeer final : public Peer {
 public:
  OwnerPeer(Shard& shard, const Key& key, DomainPeers& peers) : Peer(key, peers), shard_(shard) {}

  bool pass(const transport::ForwardedRequest& request);
  void end(roce::Qpn target);

  // How many times the agent was asked for the link.
  uint32_t asked = 0;

 private:
  bool take(ConstBytes message) override;

  Shard& shard_;
};

// Another process with XRC targets that deliver to shared receive queues of this process. A StandIn
// represents each of these targets in this process. When the other process ends, receive requests that it had
// begun to fill complete with an error.
class TargetPeer final : public Peer, private transport::StandInAnswers {
 public:
  // Stand-ins use `keys`, and `queues`, this process's shared receive queues for XRC.
  TargetPeer(Shard& shard, memory::KeyTable& keys, const queues::SharedReceiveQueueTable& queues,
             const Key& key, DomainPeers& peers, ForeignSocket socket);
  ~TargetPeer() override;

  // Removes all references to a queue. Called when the queue is destroyed.
  void forget(const queues::SharedReceiveQueue& queue);

 private:
  using StandIns = std::map<uint32_t, std::unique_ptr<transport::StandIn>>;

  bool take(ConstBytes message) override;
  bool take_request(const RequestMessage& message, ConstBytes packet);
  transport::StandIn* make(const RequestMessage& message);
  void end(StandIns::iterator stand_in);
  void answer(const transport::StandIn& stand_in, const transport::OwnerAnswer& answer,
              bool after_packets) override;

  Shard& shard_;
  memory::KeyTable& keys_;
  const queues::SharedReceiveQueueTable& queues_;
  StandIns stand_ins_;  // key: the target's QPN
};

// The other processes on this host that share XRC domains with this one. An XRC target QP of one process may
// deliver to shared receive queues of another. DomainPeers forwards requests for queues of other processes to
// them, and takes requests for queues of this process. The agent knows which processes have a domain open,
// and makes a link between two of them when it is first needed.
class DomainPeers final : public Input, public transport::QueueOwners {
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

  // Arranges that links with waiting messages are flushed again soon, and lost ones removed.
  void needs_care() { set(flushing_, kFlushInterval); }

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
  // How soon a full socket is tried again, unless its reader sends something before.
  static constexpr Duration kFlushInterval = std::chrono::milliseconds(1);

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
