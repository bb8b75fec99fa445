// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/multicast_group.h"

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

}  // namespace verbena::engine
