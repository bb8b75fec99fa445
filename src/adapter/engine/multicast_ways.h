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

// The routes by which QPs of a shard send to multicast groups. Each datagram leaves by a port. A copy also
// goes by shared memory to each slot of this host that has asked for the group's datagrams. A receiver that
// gets both uses the first (adapter/transport/multicast.h). So a copy that finds no room is dropped, and
// nobody waits.
//
// For the shard's lock holder.
class MulticastWays {
 public:
  // The maximum number of groups with copies, and of members of a group. Any further ones go by their ports
  // alone.
  static constexpr size_t kMaxGroups = 256;
  static constexpr size_t kMaxMembers = 256;

  // Returns the route for a path to a group by this port: one that also sends copies, or `by_port` itself if
  // nobody has asked for copies. The route lives as long as this object.
  const transport::Route& find(const roce::Path& path, const transport::Route& by_port);

  // Removes all members, before add() names the current ones.
  void clear();
  // Adds a member that wants copies of the group. Returns true if the group is new: then find() returns
  // another route for it.
  bool add(const GroupKey& group, LocalPeer& member);

 private:
  class Way final : public transport::PacketSink {
   public:
    explicit Way(const GroupKey& g) : group(g) {}
    transport::SendStatus send(const transport::OutgoingPacket& packet) override;

    const GroupKey group;
    transport::PacketSink* port = nullptr;  // null: nothing has been sent to the group yet
    transport::Route route;
    std::vector<LocalPeer*> members;
  };
  Way* find(const GroupKey& group);

  std::vector<std::unique_ptr<Way>> ways_;
};

}  // namespace verbena::engine
