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
  // Whether the other end is closed, has broken the protocol, or lose() was called. Nothing is sent or
  // received any more.
  bool is_lost() const { return lost_; }
  // Whether the other end is closed. Messages that it sent before may still be unread.
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

class Peer;

// Is notified when a peer's link is lost or has messages waiting. Then it flushes the link again later, or
// removes the peer.
class PeerKeeper {
 public:
  virtual ~PeerKeeper() = default;
  virtual void needs_care() = 0;
};

// Another process that has an XRC domain of this process open, in one of two roles. The other process owns
// queues to which targets of this process deliver (owner_peer.h), or it has targets that deliver to queues of
// this process (target_peer.h). A process with both roles has one link for each role. Call only with the
// shard's lock held.
class Peer {
 public:
  struct Key {
    uint64_t domain = 0;  // this process's number for the XRC domain
    uint32_t slot = 0;    // of the other process
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  Peer(const Key& key, PeerKeeper& keeper) : key_(key), keeper_(keeper) {}
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

 private:
  const Key key_;
  PeerKeeper& keeper_;
  PeerLink link_;
  PollEntry entry_;
};

}  // namespace verbena::engine
