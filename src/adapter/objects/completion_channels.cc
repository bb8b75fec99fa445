// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/completion_channels.h"

#include "base/failed_call.h"
#include "base/log.h"

namespace verbena::adapter {
namespace {

// Longer than a waiting thread takes to leave when it was told to.
constexpr Duration kPatience = std::chrono::seconds(1);

}  // namespace

Result<ibv_comp_channel*> CompletionChannels::create() {
  if (device_.is_gone()) return fail(EIO);
  auto events = queues::EventChannel::create();
  if (!events) return tl::unexpected(events.error());
  auto channel = std::make_unique<CompChannel>();
  channel->context = device_.context();
  channel->fd = (*events)->fd();
  channel->refcnt = 0;
  channel->events = std::move(*events);
  return table_.add(std::move(channel));
}

int CompletionChannels::destroy(ibv_comp_channel* channel) {
  CompChannel& object = CompChannel::of(channel);
  if (object.has_users()) return because(EBUSY, "completion queues use it");
  dismiss_waiter(object);
  table_.destroy(object);
  return 0;
}

// Makes a thread that waits for the channel's events leave. It sleeps at the wake-up of a shard, and the
// engine may end before it wakes. (A child after fork() has no such thread.)
void CompletionChannels::dismiss_waiter(CompChannel& channel) {
  if (device_.inherited()) return;
  if (!channel.events->dismiss_waiter(kPatience)) {
    log_warning("a completion channel goes away while a thread waits for its events");
  }
}

}  // namespace verbena::adapter
