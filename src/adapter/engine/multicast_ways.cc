// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/multicast_ways.h"

#include <algorithm>
#include <new>

#include "adapter/shm/local_peer.h"

namespace verbena::engine {

using transport::Route;
using transport::SendStatus;

// What the port does not take now comes again.
SendStatus MulticastWays::Way::send(const transport::OutgoingPacket& packet) {
  const SendStatus status = port->send(packet);
  if (status != SendStatus::kSent) return status;
  for (LocalPeer* const member : members) member->send_copy(packet);
  return status;
}

MulticastWays::Way* MulticastWays::find(const GroupKey& group) {
  const auto known = std::ranges::find(ways_, group, [](const auto& way) { return way->group; });
  return known != ways_.end() ? known->get() : nullptr;
}

// Of several ports that a group could be reached by the first is the one that counts.
const Route& MulticastWays::find(const roce::Path& path, const Route& by_port) {
  Way* const way = find({path.destination, path.interface_index});
  if (way == nullptr || by_port.sink == nullptr) return by_port;
  if (way->port == nullptr) {
    way->port = by_port.sink;
    way->route = by_port;
    way->route.sink = way;
  }
  return way->port == by_port.sink ? way->route : by_port;
}

void MulticastWays::clear() {
  for (const auto& way : ways_) way->members.clear();
  // Of groups to which something has been sent QPs have the routes.
  if (ways_.size() == kMaxGroups) std::erase_if(ways_, [](const auto& way) { return way->port == nullptr; });
}

bool MulticastWays::add(const GroupKey& group, LocalPeer& member) {
  Way* way = find(group);
  const bool is_new = way == nullptr;
  try {
    if (is_new) {
      if (ways_.size() == kMaxGroups) return false;
      way = ways_.emplace_back(std::make_unique<Way>(group)).get();
    }
    auto& members = way->members;
    const bool is_there = std::ranges::find(members, &member) != members.end();
    if (members.size() < kMaxMembers && !is_there) members.push_back(&member);
    return is_new;
  } catch (const std::bad_alloc&) {
    return is_new && way != nullptr;
  }
}

}  // namespace verbena::engine
