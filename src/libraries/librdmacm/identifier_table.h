// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/time.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/channel.h"

namespace verbena::rdmacm {

class Identifier;

// The identifiers of a process, and the event channels they have, by the numbers that events name.
// Thread-safe. Its lock is taken before an identifier's. Under it nothing is asked of the agent except to
// restore identifiers.
class IdentifierTable {
 public:
  // Numbers go on after `last_number`.
  explicit IdentifierTable(uint32_t last_number = 0) : last_number_(last_number) {}

  // A number for an identifier, a channel or a membership: none that an identifier or a channel has. They are
  // used again after two billion others, which a program that connects for each request comes to.
  uint32_t draw_number();

  void add(std::shared_ptr<Channel> channel);
  void remove(const Channel& channel);
  // Whether a channel at this address was removed a moment ago.
  bool was_just_removed(const rdma_event_channel* channel);
  std::vector<std::shared_ptr<Channel>> channels();
  // The channel that the application means; it stays as long as the answer does. EBADF: there is none (any
  // more). Programs read a channel in one thread and destroy it in another.
  Result<std::shared_ptr<Channel>> find(const rdma_event_channel* channel);

  void add(Identifier& identifier);
  // The agent is told to destroy it: another agent is not asked for it any more. Events still find it.
  void begin_removal(const Identifier& identifier);
  // No event finds it any more.
  void remove(Identifier& identifier);
  // Gives it a number of our own, for another agent; events with the old one still find it. Called by
  // for_each()'s visitor only.
  void renumber(Identifier& identifier);

  // Whose event this is; counted as delivered to it, so that it stays until that is acknowledged. Null: it
  // has been destroyed.
  Identifier* deliver(const protocol::CmEvent& event);

  bool empty();
  // Every identifier but those whose removal has begun. None goes away meanwhile.
  void for_each(const std::function<void(Identifier&)>& visit);

 private:
  uint32_t draw();  // REQUIRES: mutex_ is held

  std::mutex mutex_;
  uint32_t last_number_;
  std::unordered_map<const rdma_event_channel*, std::shared_ptr<Channel>> channels_;
  std::unordered_set<uint32_t> channel_numbers_;
  const rdma_event_channel* removed_ = nullptr;  // the last one
  TimePoint removed_at_{};
  std::unordered_map<uint64_t, Identifier*> identifiers_;
  std::unordered_set<const Identifier*> ending_;
};

}  // namespace verbena::rdmacm
