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

// A multicast group on one link, for the QPs of a shard that are attached to it. Each of them gets a copy of
// each datagram (IBTA volume 1, 10.5.2). Datagrams from this host may also come by shared memory. Threads:
// constructor and destructor must be called without the shard's lock, all other functions with it.
class MulticastGroup final : public Input, public GroupMember, private net::PacketHandler {
 public:
  // `socket` has joined the group on the interface. `is_ours` returns whether an address belongs to the link.
  // `local` brings copies by shared memory, once LocalPeers::add() was called; null: there are none.
  MulticastGroup(Shard& shard, const roce::Address& group, uint32_t interface_index, UniqueFd socket,
                 std::function<bool(const roce::Address&)> is_ours, LocalPeers* local);
  // Leaves the group. REQUIRES: the shard's lock is not held, as the kernel informs the network
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
  TimePoint now_;  // the time of the last receive()
};

// The multicast groups to which QPs of a shard are attached. A group is joined with its first QP and left
// with its last. When a process is killed, the kernel closes the sockets, which leaves the groups.
//
// Any thread, not inside Shard::exclusively().
class MulticastGroups {
 public:
  // A multicast group on a link.
  struct Key {
    uint32_t device_index = 0;
    roce::Address group;
    friend bool operator==(const Key&, const Key&) = default;
  };
  // Functions that the groups need from the process.
  struct Surroundings {
    // Gets a socket from the agent that has joined the group.
    std::function<Result<UniqueFd>(const Key&)> join;
    // Returns the interface index of the link's network device; 0: the link is gone.
    std::function<uint32_t(uint32_t device_index)> interface_of;
    std::function<bool(uint32_t device_index, const roce::Address&)> is_address_of;
  };

  // The maximum number of groups of a shard. More would take too many of the application's descriptors.
  static constexpr size_t kMax = 512;

  MulticastGroups(Shard& shard, Surroundings surroundings)
      : shard_(shard), surroundings_(std::move(surroundings)) {}
  ~MulticastGroups();
  MulticastGroups(const MulticastGroups&) = delete;
  MulticastGroups& operator=(const MulticastGroups&) = delete;

  // Sets the source of copies by shared memory; it outlives this object. REQUIRES: before the first attach()
  void bring_by(LocalPeers* local) { local_ = local; }

  // Attaches a QP to a group. A QP may be attached several times; each detach() undoes one attach(). Errors:
  // ENODEV: the link is gone; ENETDOWN: the agent does not have UDP port 4791; ENOMEM: too many groups, or no
  // memory; other errors of joining.
  Result<void> attach(const Key& key, const transport::Attachment& attachment);
  // Detaches a QP from a group. Returns false if it was not attached.
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
