// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "base/unique_fd.h"
#include "engine/input.h"
#include "engine/shard.h"
#include "net/udp/receiver.h"
#include "roce/path.h"
#include "transport/multicast.h"

namespace verbena::engine {

// A multicast group on one link, for the QPs of a shard that are attached to it: a copy of each datagram goes
// to every one of them (IBTA volume 1, 10.5.2). With the shard's lock held, except when it
// is made and destroyed.
class MulticastGroup final : public Input, private net::PacketHandler {
 public:
  // `socket` is joined to the group on the interface. `is_ours` says whether an address is the link's.
  MulticastGroup(Shard& shard, const roce::Address& group, uint32_t interface_index, UniqueFd socket,
                 std::function<bool(const roce::Address&)> is_ours);
  // Leaves the group. Without the shard's lock: the kernel tells the network.
  ~MulticastGroup() override;

  const roce::Address& address() const { return group_; }

  transport::MulticastMembers& members() { return members_; }

  // Input
  int fd() const override { return receiver_.fd(); }
  uint32_t receive(uint32_t budget, TimePoint now) override;
  void abandon() override { receiver_.close(); }

 private:
  void on_packet(const transport::IncomingPacket& packet) override;

  Shard& shard_;
  const roce::Address group_;
  const uint32_t interface_index_;
  const std::function<bool(const roce::Address&)> is_ours_;
  net::PortCounters& counters_;
  net::Receiver receiver_;
  transport::MulticastMembers members_;
};

}  // namespace verbena::engine
