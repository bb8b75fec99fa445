// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include "adapter/xrc/peer_link.h"
#include "base/poll_entry.h"

namespace verbena::engine {

class Peer;

// Is notified that a peer's link is lost or has messages waiting, and has to look at the link again.
class PeerKeeper {
 public:
  virtual ~PeerKeeper() = default;
  virtual void needs_care() = 0;
};

// Another process that has an XRC domain of this process open, in one of two roles: it owns queues to which
// targets of this process deliver (owner_peer.h), or has targets that deliver to queues of this process
// (target_peer.h). A process with both roles has a link for each. For the holder of the shard's lock.
class Peer {
 public:
  struct Key {
    uint64_t domain = 0;  // this process's number for it
    uint32_t slot = 0;    // of the other process
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  Peer(const Key& key, PeerKeeper& keeper) : key_(key), keeper_(keeper) {}
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const Key& key() const { return key_; }
  PeerLink& link() { return link_; }

  // Adds the link to this epoll set, with a Peer* as its data. The set must outlive the peer. False on
  // failure.
  bool announce_in(int poll_set) { return entry_.join(poll_set, link_.fd(), this); }
  // In a child after fork(): leaves the link and the epoll set to the parent.
  void abandon();
  // Takes the messages that have arrived, at most `budget`; returns how many.
  uint32_t receive(uint32_t budget);

 protected:
  // Handles a message. False: it is malformed, and later messages will not be read.
  virtual bool take(ConstBytes message) = 0;
  // Sends a message. False: there is no room, or the link is lost.
  bool say(std::span<const iovec> pieces);

 private:
  const Key key_;
  PeerKeeper& keeper_;
  PeerLink link_;
  PollEntry entry_;
};

}  // namespace verbena::engine
