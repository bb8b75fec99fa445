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

// The identifiers and event channels of a process, by the numbers that events carry. Thread-safe. The table's
// lock is taken before an identifier's mutex. Under the table's lock, the agent gets no requests except those
// that restore identifiers.
class IdentifierTable {
 public:
  // Assigns numbers after `last_number`.
  explicit IdentifierTable(uint32_t last_number = 0) : last_number_(last_number) {}

  // Returns a number for a new identifier, channel or membership that no live identifier or channel has.
  // Numbers wrap around after two billion, which programs with a connection for each request reach.
  uint32_t draw_number();

  void add(std::shared_ptr<Channel> channel);
  void remove(const Channel& channel);
  // Whether this channel was the last one to be removed, within the last 100 ms. If so, rdma_get_cm_event()
  // waits before it fails.
  bool was_just_removed(const rdma_event_channel* channel);
  std::vector<std::shared_ptr<Channel>> channels();
  // Returns the channel of the application's pointer; EBADF if the channel was destroyed or never existed.
  // The result keeps the channel alive, because programs may read a channel in one thread and destroy it in
  // another.
  Result<std::shared_ptr<Channel>> find(const rdma_event_channel* channel);

  void add(Identifier& identifier);
  // Excludes the identifier from restorations, before the agent is asked to destroy it. Events still find the
  // identifier.
  void begin_removal(const Identifier& identifier);
  // Removes the identifier: events do not find it any more.
  void remove(Identifier& identifier);
  // Replaces a number that the dead agent assigned by a number of this process, so that the next agent can
  // restore the identifier. Events with the old number still find the identifier. REQUIRES: the caller is a
  // visitor of for_each(), which holds the lock
  void renumber(Identifier& identifier);

  // Returns the identifier of an event, or its listener for a connection request. Counts the event as
  // delivered, so that the identifier lives until the acknowledgement. Returns null if the identifier was
  // destroyed, or the event's multicast membership has ended.
  Identifier* deliver(const protocol::CmEvent& event);

  bool empty();
  // Calls `visit` for every identifier except those whose removal has begun. No identifier is removed
  // meanwhile.
  void for_each(const std::function<void(Identifier&)>& visit);

 private:
  uint32_t draw();  // REQUIRES: mutex_ is held

  std::mutex mutex_;
  uint32_t last_number_;
  std::unordered_map<const rdma_event_channel*, std::shared_ptr<Channel>> channels_;
  std::unordered_set<uint32_t> channel_numbers_;
  const rdma_event_channel* removed_ = nullptr;  // the channel removed last
  TimePoint removed_at_{};
  std::unordered_map<uint64_t, Identifier*> identifiers_;
  std::unordered_set<const Identifier*> ending_;  // identifiers whose removal has begun
};

}  // namespace verbena::rdmacm
