// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/objects/cq_shards.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/queues/event_channel.h"

namespace verbena::adapter {

// A completion channel (ibv_create_comp_channel(3)).
struct CompChannel : ibv_comp_channel {
  using Abi = ibv_comp_channel;
  static CompChannel& of(ibv_comp_channel* channel) { return *static_cast<CompChannel*>(channel); }

  // Count the completion queues that report their events to this channel; while there are any, the channel
  // cannot be destroyed. The count is the C struct's `refcnt`, because programs may read that field.
  void add_user() { std::atomic_ref(refcnt).fetch_add(1); }
  void remove_user() { std::atomic_ref(refcnt).fetch_sub(1); }
  bool has_users() { return std::atomic_ref(refcnt).load() != 0; }

  ListHook owned;
  provider::LiveObject live;
  std::shared_ptr<queues::EventChannel> events;
  CqShards shards;  // the shards that add completions to the channel's CQs
};

// Creates and owns the completion channels of a context. Thread-safe.
class CompletionChannels {
 public:
  explicit CompletionChannels(OpenDevice& device) : device_(device) {}
  ~CompletionChannels() {
    table_.destroy_all([&](CompChannel& channel) { dismiss_waiter(channel); });
  }

  Result<ibv_comp_channel*> create();
  int destroy(ibv_comp_channel* channel);

 private:
  void dismiss_waiter(CompChannel& channel);

  OpenDevice& device_;
  ObjectTable<CompChannel> table_;
};

}  // namespace verbena::adapter
