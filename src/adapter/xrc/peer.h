// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include "adapter/xrc/peer_link.h"
#include "base/poll_entry.h"

namespace verbena::engine {

class Peer;

// Hears that a peer's link is lost, or has something waiting: somebody must come back to it.
class PeerKeeper {
 public:
  virtual ~PeerKeeper() = default;
  virtual void needs_care() = 0;
};

// Another process that has an XRC domain of ours open, in one of two roles: as the owner of queues that our
// targets are sent to (owner_peer.h), or with targets that are sent to our queues (target_peer.h). It may be
// both, over a link for each. For the shard's lock holder.
class Peer {
 public:
  struct Key {
    uint64_t domain = 0;  // as it is called in this process
    uint32_t slot = 0;    // the other's
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  Peer(const Key& key, PeerKeeper& keeper) : key_(key), keeper_(keeper) {}
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const Key& key() const { return key_; }
  PeerLink& link() { return link_; }

  // From now on this epoll set tells when there is something to receive, its data a Peer*. It must outlive
  // the peer. False: that cannot be.
  bool announce_in(int poll_set) { return entry_.join(poll_set, link_.fd(), this); }
  // In a child after fork(): the link is the parent's, and so is the epoll set.
  void abandon();
  // Takes what has arrived, at most `budget` messages; returns how many.
  uint32_t receive(uint32_t budget);

 protected:
  // A message. False: it is none of ours, and nothing that follows will be looked at.
  virtual bool take(ConstBytes message) = 0;
  // False: it cannot be said, and is not.
  bool say(std::span<const iovec> pieces);

 private:
  const Key key_;
  PeerKeeper& keeper_;
  PeerLink link_;
  PollEntry entry_;
};

}  // namespace verbena::engine
