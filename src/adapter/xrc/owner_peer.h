// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "adapter/engine/shard.h"
#include "adapter/transport/queue_owners.h"
#include "adapter/xrc/peer.h"

namespace verbena::engine {

// Another process that owns shared receive queues to which XRC targets of this process deliver. Forwarded
// requests wait here until the agent has made the link to that process.
class OwnerPeer final : public Peer {
 public:
  OwnerPeer(Shard& shard, transport::QueueOwners& owners, const Key& key, PeerKeeper& keeper)
      : Peer(key, keeper), shard_(shard), owners_(owners) {}

  bool pass(const transport::ForwardedRequest& request);
  void end(roce::Qpn target);

  // How many times the agent was asked for the link.
  uint32_t asked = 0;

 private:
  bool take(ConstBytes message) override;

  Shard& shard_;
  transport::QueueOwners& owners_;
};

}  // namespace verbena::engine
