// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "adapter/engine/input.h"
#include "adapter/engine/shard.h"
#include "adapter/memory/key_table.h"
#include "adapter/queues/shared_receive_queue.h"
#include "adapter/transport/forwarded_requests.h"
#include "adapter/transport/stand_in.h"
#include "base/bytes.h"
#include "base/foreign_socket.h"
#include "base/own_fd.h"
#include "base/plain_calls.h"
#include "control/model/slot_messages.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

// The messages between two processes that share an XRC domain, over a SOCK_SEQPACKET pair that the agent
// makes. One process has an XRC target, the other owns the shared receive queue that a request names. Numbers
// are in host byte order, because both processes are on one machine. Each process checks the other's messages
// like packets from the network.
namespace verbena::engine {

inline constexpr uint32_t kPeerMagic = 0x31637278;  // "xrc1"; changes with the layout

enum class PeerMessage : uint8_t {
  kRequest,  // target to queue owner: RequestMessage, then a packet as on the wire but with a zero ICRC
  kEnd,  // target to queue owner: the target has ended; of RequestMessage only magic, type and qpn are used
  kAnswer,  // queue owner to target: AnswerMessage
};

struct RequestMessage {
  uint32_t magic;
  PeerMessage type;
  uint8_t repeated;  // 0 or 1; see transport::ForwardedRequest
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;
  uint32_t run;
  uint32_t msn;
  uint32_t qpn;         // of the target
  uint32_t requester;   // QPN of the target's peer
  uint32_t access;      // enum ibv_access_flags
  uint32_t path_mtu;    // bytes
  uint32_t flow_label;  // of the path to the requester
  uint32_t interface_index;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t source[16];
  uint8_t destination[16];
  uint8_t reserved[6];
};
static_assert(sizeof(RequestMessage) == 80);

struct AnswerMessage {
  uint32_t magic;
  PeerMessage type;
  uint8_t syndrome;
  uint8_t has_event;
  uint8_t reserved;
  uint32_t qpn;  // of the target
  uint32_t run;
  uint32_t psn;
  uint32_t msn;
  uint32_t event;  // enum ibv_event_type
};
static_assert(sizeof(AnswerMessage) == 28);

inline constexpr uint32_t kMaxPeerMessage =
    sizeof(RequestMessage) + roce::kMaxHeaderBytes + roce::kMaxPathMtu + 3 + roce::kIcrcBytes;

// This process's end of a socket to another process. Messages are sent in order, and wait in the PeerLink
// while the socket is full or not open yet. Never blocks, and allocates memory only for waiting messages.
// Call only with the shard's lock held.
class PeerLink {
 public:
  // Maximum size of all waiting messages together, in bytes.
  static constexpr size_t kMaxWaiting = 512 << 10;

  int fd() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  // Whether the link is lost for good: sending or receiving found the other end closed, a message was
  // malformed, or lose() was called. Nothing is sent or received any more.
  bool is_lost() const { return lost_; }
  // Asks the kernel whether the other end is closed. Messages that it sent before it closed may still be
  // unread, so is_lost() may still be false.
  bool has_hung_up() const;
  void lose() { lost_ = true; }
  bool has_waiting() const { return !waiting_.empty(); }

  // Sets the socket and sends the waiting messages.
  void open(ForeignSocket socket) {
    socket_ = std::move(socket);
    flush();
  }
  // Leaves the link to the parent. Called in a child after fork().
  void abandon() { socket_.abandon(); }

  // Sends one message that consists of these pieces, or adds it to the waiting messages. Returns false if the
  // waiting messages would exceed kMaxWaiting, or the link is lost.
  bool send(std::span<const iovec> pieces);
  // Sends waiting messages until the socket is full.
  void flush();

  // Reads the next message into `buffer` and returns it. Returns an empty span if there is none or the link
  // is lost. A message longer than `buffer` makes the link lost.
  ConstBytes receive(Bytes buffer);

 private:
  bool keep(std::span<const iovec> pieces);

  ForeignSocket socket_;
  bool lost_ = false;
  std::deque<std::vector<std::byte>> waiting_;
  size_t waiting_bytes_ = 0;
};

class DomainPeers;

// Another process that has an XRC domain of this process open, in one of two roles. The other process owns
// queues to which targets of this process deliver (OwnerPeer), or it has targets that deliver to queues of
// this process (TargetPeer). A process with both roles has one link for each role. Call only with the
// shard's lock held.
class Peer {
 public:
  struct Key {
    uint64_t domain = 0;  // this process's number for the XRC domain
    uint32_t slot = 0;    // of the other process
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  Peer(const Key& key, DomainPeers& peers) : peers_(peers), key_(key) {}
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const Key& key() const { return key_; }
  PeerLink& link() { return link_; }

  // Adds the link's socket to an epoll set, with a Peer* as the event data. Returns false on failure.
  // REQUIRES: the set outlives the peer
  bool announce_in(int poll_set) { return entry_.join(poll_set, link_.fd(), this); }
  // Leaves the link and the epoll set to the parent. Called in a child after fork().
  void abandon() {
    entry_.forget();
    link_.abandon();
  }
  // Handles the messages that have arrived, at most `budget`, and returns their number.
  uint32_t receive(uint32_t budget);

 protected:
  // Handles one message. Returns false if the message is malformed, which makes the link lost.
  virtual bool take(ConstBytes message) = 0;
  // Sends a message that consists of these pieces. Returns false if too many messages wait already
  // (PeerLink::kMaxWaiting) or the link is lost.
  bool say(std::span<const iovec> pieces);

  DomainPeers& peers_;

 private:
  const Key key_;
  PeerLink link_;
  PollEntry entry_;
};

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
// represents each of these targets in this process. If the other process ends, the receive requests that its
// messages had begun to fill complete with an error.
class TargetPeer final : public Peer, private transport::StandInAnswers {
 public:
  // Maximum of the READs and atomics for which the stand-ins of a link have responder resources, in total.
  // These take some 20 MiB. The other process, perhaps of another user, sets the number for each stand-in. If
  // the total would exceed the maximum, the link is lost.
  static constexpr uint32_t kMaxReads = 65536;

  // Stand-ins use `keys`, and `queues`, this process's shared receive queues for XRC.
  TargetPeer(Shard& shard, memory::KeyTable& keys, const queues::SharedReceiveQueueTable& queues,
             const Key& key, DomainPeers& peers, ForeignSocket socket);
  ~TargetPeer() override;

  // Removes all references to a queue. Called when the queue is destroyed.
  void forget(const queues::SharedReceiveQueue& queue) {
    for (const auto& [qpn, stand_in] : stand_ins_) stand_in->receives().forget(queue);
  }

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
  uint32_t reads_ = 0;  // of all stand-ins
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

  // Takes a message of the agent. It brings a link that the agent has made, or reports that there is none, or
  // that the lease of another process's slot has ended. The end of a lease ends all links to that process.
  void connect(control::DomainPeer news);
  // Closes the links that belong to a domain. Called when this process closes the domain.
  void leave(uint64_t domain);

  // ---- with the shard's lock held (Shard::exclusively())

  // Removes all references to a queue of this process. Called when the queue is destroyed.
  void forget(const queues::SharedReceiveQueue& queue) {
    for (const auto& [key, target] : targets_) target->forget(queue);
  }

  // Arranges that links with waiting messages are flushed again soon, and lost ones removed.
  void needs_care() { set(flushing_, kFlushInterval); }

  // QueueOwners
  uint32_t new_run() override {
    if (++last_run_ == 0) ++last_run_;
    return last_run_;
  }
  bool pass(const transport::ForwardedRequest& request) override;
  void end(const transport::QueuePair& target) override;

  // Input
  int fd() const override { return poll_set_.get(); }
  bool has_set() const override { return true; }
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
  // Maximum number of messages that are still read from a link after the other process's lease has ended. The
  // link's socket holds some 280.
  static constexpr uint32_t kMaxAtEnd = 512;

  void take_care();
  void set(Care& care, Duration after) {
    if (std::exchange(care.is_set, true)) return;
    shard_.set_alarm(care, after);
  }
  void ask(OwnerPeer& owner);
  void ask_again();
  OwnerPeer* find_owner(const Peer::Key& key);
  void connect_owner(const Peer::Key& key, ForeignSocket socket, int error);
  void connect_target(const Peer::Key& key, ForeignSocket socket);
  void end_links_to(uint32_t slot);
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
