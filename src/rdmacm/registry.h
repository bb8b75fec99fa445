// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "control/cm_protocol.h"
#include "rdmacm/channel.h"

namespace verbena::rdmacm {

class Identifier;

// The channels and identifiers of a process, by the numbers that events give them. Thread-safe. Its lock is
// taken before an identifier's, and nothing is asked of the agent under it but what restores identifiers.
class Registry {
 public:
  void add(std::shared_ptr<Channel> channel);
  void remove(const Channel& channel);
  // Whether a channel at this address was removed a moment ago.
  bool was_just_removed(const rdma_event_channel* channel);
  std::vector<std::shared_ptr<Channel>> channels();
  // The channel that the application means; it stays as long as the answer does. EBADF: there is none (any
  // more). Programs read a channel in one thread and destroy it in another.
  Result<std::shared_ptr<Channel>> find(const rdma_event_channel* channel);

  void add(Identifier& identifier);
  // No event finds it any more.
  void remove(Identifier& identifier);
  // Gives it another number, for another agent; events with the old one still find it. Called by for_each()'s
  // visitor only.
  void renumber(Identifier& identifier, uint32_t number);

  // Whose event this is; counted as delivered to it, so that it stays until that is acknowledged. Null: it
  // has been destroyed.
  Identifier* deliver(const control::CmEvent& event);

  bool empty();
  // Every identifier, none of which goes away meanwhile.
  void for_each(const std::function<void(Identifier&)>& visit);

 private:
  std::mutex mutex_;
  std::unordered_map<const rdma_event_channel*, std::shared_ptr<Channel>> channels_;
  const rdma_event_channel* removed_ = nullptr;  // the last one
  TimePoint removed_at_{};
  std::unordered_map<uint64_t, Identifier*> identifiers_;
};

}  // namespace verbena::rdmacm
