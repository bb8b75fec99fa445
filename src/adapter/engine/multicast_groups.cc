// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/multicast_groups.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "adapter/net/udp/multicast_socket.h"

namespace verbena::engine {

using Way = transport::MulticastCopies::Way;

MulticastGroup::MulticastGroup(Shard& shard, const roce::Address& group, uint32_t interface_index,
                               UniqueFd socket, std::function<bool(const roce::Address&)> is_ours,
                               LocalPeers* local)
    : shard_(shard),
      group_(group),
      interface_index_(interface_index),
      is_ours_(std::move(is_ours)),
      counters_(*shard.exclusively([&] { return &shard.counters(); })),
      local_(local),
      receiver_(std::move(socket), roce::kUdpPort, roce::kMulticastQpn.slot(), counters_) {}

// The agent, which made the socket, may close its own descriptor of it later than we do.
MulticastGroup::~MulticastGroup() {
  if (receiver_.is_whole()) net::leave_multicast(receiver_.fd(), group_, interface_index_);
}

uint32_t MulticastGroup::receive(uint32_t budget, TimePoint now) {
  now_ = now;
  return receiver_.fd() < 0 ? 0 : receiver_.receive(*this, budget);
}

void MulticastGroup::on_packet(const transport::IncomingPacket& packet) {
  // The socket of an IPv6 group may be given what came in elsewhere.
  if (packet.path.interface_index != interface_index_) return;
  const bool may_have_come =
      (local_ != nullptr && local_->heard(*this, packet)) || copies_.knows(packet.packet.headers.source);
  if (may_have_come && !is_first(Way::kWire, packet)) return;
  deliver(packet);
}

void MulticastGroup::on_copy(const transport::IncomingPacket& packet) {
  if (is_first(Way::kMemory, packet)) deliver(packet);
}

bool MulticastGroup::is_first(Way way, const transport::IncomingPacket& packet) {
  return copies_.is_first(way, packet.packet.headers.source, packet.packet.headers.psn, now_);
}

void MulticastGroup::deliver(const transport::IncomingPacket& packet) {
  const bool is_for_group =
      members_.fan_out(packet, is_ours_, [&](transport::QueuePair& qp) { shard_.deliver(qp, packet); });
  if (!is_for_group) ++counters_.dropped[static_cast<size_t>(net::DropReason::kNoQueuePair)];
}

MulticastGroups::~MulticastGroups() {
  for (Entry& entry : groups_) shard_.exclusively([&] { leave(*entry.group); });
}

// Inside Shard::exclusively().
void MulticastGroups::leave(MulticastGroup& group) {
  shard_.remove_input(group);
  if (local_ != nullptr) local_->forget(group);
}

Result<void> MulticastGroups::attach(const Key& key, const transport::Attachment& attachment) {
  const std::lock_guard guard(mutex_);
  const auto known = std::ranges::find(groups_, key, &Entry::key);
  if (known == groups_.end()) return join(key, attachment);
  return shard_.exclusively([&] { return known->group->members().attach(attachment); });
}

// REQUIRES: mutex_ is held
Result<void> MulticastGroups::join(const Key& key, const transport::Attachment& attachment) {
  const uint32_t interface = surroundings_.interface_of(key.device_index);
  if (interface == 0) return fail(ENODEV);
  if (groups_.size() >= kMax) return fail(ENOMEM);
  Result<UniqueFd> socket = surroundings_.join(key);
  if (!socket) return tl::unexpected(socket.error());
  try {
    groups_.reserve(groups_.size() + 1);
    auto group = std::make_unique<MulticastGroup>(
        shard_, key.group, interface, std::move(*socket),
        [this, device = key.device_index](const roce::Address& a) {
          return surroundings_.is_address_of(device, a);
        },
        local_);
    const Result<void> added = shard_.exclusively([&]() -> Result<void> {
      if (auto attached = group->members().attach(attachment); !attached) return attached;
      if (auto heard = shard_.add_input(*group); !heard) return heard;
      if (local_ != nullptr) local_->add(*group);
      return {};
    });
    if (added) groups_.push_back({key, std::move(group)});
    return added;
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

bool MulticastGroups::detach(const Key& key, const transport::QueuePair& qp) {
  const std::lock_guard guard(mutex_);
  const auto known = std::ranges::find(groups_, key, &Entry::key);
  if (known == groups_.end()) return false;
  const bool detached = shard_.exclusively([&] {
    const bool was_attached = known->group->members().detach(qp);
    if (known->group->members().empty()) leave(*known->group);
    return was_attached;
  });
  if (known->group->members().empty()) groups_.erase(known);
  return detached;
}

}  // namespace verbena::engine
