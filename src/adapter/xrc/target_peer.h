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

// Another process with XRC targets that deliver to shared receive queues of this process. A StandIn
// represents each of these targets in this process. When the other process ends, receive requests that it had
// begun to fill complete with an error.
class TargetPeer final : public Peer, private transport::StandInAnswers {
 public:
  // The objects of this process that stand-ins use.
  struct Surroundings {
    Shard& shard;
    memory::KeyTable& keys;
    const queues::SharedReceiveQueueTable& queues;  // this process's queues for XRC
  };

  TargetPeer(const Surroundings& surroundings, const Key& key, PeerKeeper& keeper, ForeignSocket socket);
  ~TargetPeer() override;

  // Removes all references to a queue. Called when the queue is destroyed.
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
  StandIns stand_ins_;  // key: the target's QPN
};

}  // namespace verbena::engine
