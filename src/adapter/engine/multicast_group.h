// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "adapter/engine/input.h"
#include "adapter/engine/local_peers.h"
#include "adapter/engine/shard.h"
#include "adapter/net/udp/receiver.h"
#include "adapter/transport/multicast.h"
#include "adapter/transport/multicast_copies.h"
#include "base/unique_fd.h"
#include "wire/roce/path.h"

namespace verbena::engine {

// A multicast group on one link, for the QPs of a shard that are attached to it: a copy of each datagram goes
// to every one of them (IBTA volume 1, 10.5.2). Datagrams of this host may come by memory as well. With the
// shard's lock held, except when it is made and destroyed.
class MulticastGroup final : public Input, public GroupMember, private net::PacketHandler {
 public:
  // `socket` is joined to the group on the interface. `is_ours` says whether an address is the link's.
  // `local`: what brings copies by memory, if it is told of us; null: nothing.
  MulticastGroup(Shard& shard, const roce::Address& group, uint32_t interface_index, UniqueFd socket,
                 std::function<bool(const roce::Address&)> is_ours, LocalPeers* local);
  // Leaves the group. Without the shard's lock: the kernel tells the network.
  ~MulticastGroup() override;

  const roce::Address& address() const { return group_; }

  transport::MulticastMembers& members() { return members_; }

  // Input
  int fd() const override { return receiver_.fd(); }
  uint32_t receive(uint32_t budget, TimePoint now) override;
  bool is_whole() const override { return receiver_.is_whole(); }
  void abandon() override { receiver_.close(); }

  // GroupMember
  GroupKey key() const override { return {group_, interface_index_}; }
  bool is_ours(const roce::Address& address) const override { return is_ours_(address); }
  void on_copy(const transport::IncomingPacket& packet) override;

 private:
  void on_packet(const transport::IncomingPacket& packet) override;
  bool is_first(transport::MulticastCopies::Way way, const transport::IncomingPacket& packet);
  void deliver(const transport::IncomingPacket& packet);

  Shard& shard_;
  const roce::Address group_;
  const uint32_t interface_index_;
  const std::function<bool(const roce::Address&)> is_ours_;
  net::PortCounters& counters_;
  LocalPeers* const local_;
  net::Receiver receiver_;
  transport::MulticastMembers members_;
  transport::MulticastCopies copies_;
  TimePoint now_;  // when it was asked last
};

}  // namespace verbena::engine
