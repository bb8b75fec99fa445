// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>

#include "adapter/engine/shard.h"
#include "adapter/memory/key_table.h"
#include "adapter/transport/stand_in.h"
#include "adapter/xrc/peer.h"
#include "adapter/xrc/peer_messages.h"

namespace verbena::engine {

// A process with XRC targets that deliver to shared receive queues of this process. A StandIn represents each
// target here. When the process ends, messages that it was delivering end with an error.
class TargetPeer final : public Peer, private transport::StandInAnswers {
 public:
  // The objects that stand-ins use.
  struct Surroundings {
    Shard& shard;
    memory::KeyTable& keys;
    const queues::SharedReceiveQueueTable& queues;  // this process's, for XRC
  };

  TargetPeer(const Surroundings& surroundings, const Key& key, PeerKeeper& keeper, ForeignSocket socket);
  ~TargetPeer() override;

  // Forgets a queue that is being destroyed.
  void forget(const queues::SharedReceiveQueue& queue);

 private:
  using StandIns = std::map<uint32_t, std::unique_ptr<transport::StandIn>>;

  transport::StandInAnswers& answers() { return *this; }
  bool take(ConstBytes message) override;
  bool take_request(const RequestMessage& message, ConstBytes packet);
  transport::StandIn* make(const RequestMessage& message);
  void end(StandIns::iterator stand_in);
  void answer(const transport::StandIn& stand_in, const transport::OwnerAnswer& answer,
              bool after_packets) override;

  Shard& shard_;
  memory::KeyTable& keys_;
  const queues::SharedReceiveQueueTable& queues_;
  StandIns stand_ins_;  // by the target's QPN
};

}  // namespace verbena::engine
