// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "adapter/shm/group_key.h"
#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"

namespace verbena::engine {

class LocalPeer;

// What QPs of a shard send to multicast groups: the datagram by its port as ever, and a copy of it by memory
// to each slot of this host that has asked for the group's. Who gets both takes the first
// (adapter/transport/multicast.h), so a copy that finds no room is left out, and nobody waits for it.
//
// For the shard's lock holder.
class MulticastWays {
 public:
  // Groups beyond that go by their ports alone, and so do members.
  static constexpr size_t kMaxGroups = 256;
  static constexpr size_t kMaxMembers = 256;

  // The route of what goes by this path and this port; itself, where nobody is to have a copy. It lives as
  // long as we do.
  const transport::Route& find(const roce::Path& path, const transport::Route& by_port);

  // Nobody is to have copies, until add() says who is.
  void clear();
  // True: find() answers otherwise for the group from now on.
  bool add(const GroupKey& group, LocalPeer& member);

 private:
  class Way final : public transport::PacketSink {
   public:
    explicit Way(const GroupKey& g) : group(g) {}
    transport::SendStatus send(const transport::OutgoingPacket& packet) override;

    const GroupKey group;
    transport::PacketSink* port = nullptr;  // none: nothing has been sent to the group
    transport::Route route;
    std::vector<LocalPeer*> members;
  };
  Way* find(const GroupKey& group);

  std::vector<std::unique_ptr<Way>> ways_;
};

}  // namespace verbena::engine
