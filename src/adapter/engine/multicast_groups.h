// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/engine/input.h"
#include "adapter/engine/local_peers.h"
#include "adapter/engine/shard.h"
#include "adapter/net/udp/receiver.h"
#include "adapter/transport/multicast.h"
#include "base/result.h"
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
  bool has_qkey(uint32_t qkey) const override { return members_.has_qkey(qkey); }
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

// The multicast groups that QPs of a shard are attached to: a group is joined with its first member and left
// with its last. A process that is killed leaves with its descriptors.
//
// Any thread, not inside Shard::exclusively().
class MulticastGroups {
 public:
  // A group of a link.
  struct Key {
    uint32_t device_index = 0;
    roce::Address group;
    friend bool operator==(const Key&, const Key&) = default;
  };
  // What the groups need to know and have done.
  struct Surroundings {
    // A socket joined to the group, from the agent.
    std::function<Result<UniqueFd>(const Key&)> join;
    // The link's netdev; 0: it is gone.
    std::function<uint32_t(uint32_t device_index)> interface_of;
    std::function<bool(uint32_t device_index, const roce::Address&)> is_address_of;
  };

  // More would take too many of the application's descriptors.
  static constexpr size_t kMax = 512;

  MulticastGroups(Shard& shard, Surroundings surroundings)
      : shard_(shard), surroundings_(std::move(surroundings)) {}
  ~MulticastGroups();
  MulticastGroups(const MulticastGroups&) = delete;
  MulticastGroups& operator=(const MulticastGroups&) = delete;

  // What comes by memory comes by these from now on. They outlive us. Before the first attach().
  void bring_by(LocalPeers* local) { local_ = local; }

  // ENODEV: the link is gone; ENETDOWN: there is no wire; ENOMEM: too many groups.
  Result<void> attach(const Key& key, const transport::Attachment& attachment);
  // False: the QP is not attached.
  bool detach(const Key& key, const transport::QueuePair& qp);

 private:
  struct Entry {
    Key key;
    std::unique_ptr<MulticastGroup> group;
  };
  Result<void> join(const Key& key, const transport::Attachment& attachment);

  void leave(MulticastGroup& group);

  Shard& shard_;
  LocalPeers* local_ = nullptr;
  const Surroundings surroundings_;
  std::mutex mutex_;  // before the shard's lock; held while the agent is asked
  std::vector<Entry> groups_;
};

}  // namespace verbena::engine
