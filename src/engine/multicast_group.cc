// SPDX-License-Identifier: Apache-2.0
#include "engine/multicast_group.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "net/udp/multicast_socket.h"

namespace verbena::engine {

using transport::IncomingPacket;
using transport::QueuePair;

MulticastGroup::MulticastGroup(Shard& shard, const roce::Address& group, uint32_t interface_index,
                               UniqueFd socket, std::function<bool(const roce::Address&)> is_ours)
    : shard_(shard),
      group_(group),
      interface_index_(interface_index),
      is_ours_(std::move(is_ours)),
      counters_(shard.port() != nullptr ? shard.port()->counters() : no_port_),
      receiver_(std::move(socket), roce::kUdpPort, roce::kMulticastQpn.slot(), counters_) {}

// The agent, which made the socket, may close its own descriptor of it later than we do.
MulticastGroup::~MulticastGroup() {
  if (receiver_.fd() >= 0) net::leave_multicast(receiver_.fd(), group_, interface_index_);
}

Result<void> MulticastGroup::attach(const Attachment& attachment) {
  const auto known =
      std::ranges::find(members_, attachment.qp, [](const Member& m) { return m.attachment.qp; });
  if (known != members_.end()) {
    ++known->times;
    return {};
  }
  try {
    members_.push_back({attachment});
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  return {};
}

bool MulticastGroup::detach(const QueuePair& qp) {
  const auto known = std::ranges::find(members_, &qp, [](const Member& m) { return m.attachment.qp; });
  if (known == members_.end()) return false;
  if (--known->times == 0) members_.erase(known);
  return true;
}

uint32_t MulticastGroup::receive(uint32_t budget, TimePoint) {
  return receiver_.fd() < 0 ? 0 : receiver_.receive(*this, budget);
}

void MulticastGroup::on_packet(const IncomingPacket& packet) {
  // The socket of an IPv6 group may be given what came in elsewhere.
  if (packet.path.interface_index != interface_index_) return;
  // To a group's address, but for one QP: no such packet is valid (IBTA volume 1, 9.6.1.2).
  if (packet.packet.headers.destination != roce::kMulticastQpn) {
    ++counters_.dropped[static_cast<size_t>(net::DropReason::kNoQueuePair)];
    return;
  }
  for (const Member& member : members_) {
    if (!is_echo(member.attachment, packet)) shard_.deliver(*member.attachment.qp, packet);
  }
}

// A QPN is one machine's: another's datagram may bear the same.
bool MulticastGroup::is_echo(const Attachment& member, const IncomingPacket& packet) const {
  return member.blocks_own && packet.packet.headers.source == member.qp->config().qpn &&
         is_ours_(packet.path.source);
}

}  // namespace verbena::engine
