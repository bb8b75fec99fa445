// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "adapter/engine/multicast_group.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::engine {

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
