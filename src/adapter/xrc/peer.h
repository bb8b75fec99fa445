// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "base/bytes.h"
#include "base/foreign_socket.h"
#include "base/plain_calls.h"
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

}  // namespace verbena::engine

namespace verbena::engine {

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
  // Asks the kernel whether the other end is closed. Messages that it sent before may still be unread, so
  // is_lost() may still be false.
  bool has_hung_up() const;
  void lose() { lost_ = true; }
  bool has_waiting() const { return !waiting_.empty(); }

  // Sets the socket and sends the waiting messages.
  void open(ForeignSocket socket);
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
  void abandon();
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

}  // namespace verbena::engine
