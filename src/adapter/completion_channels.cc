// SPDX-License-Identifier: Apache-2.0
#include "adapter/completion_channels.h"

namespace verbena::adapter {

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
  if (CompChannel::of(channel).has_users()) return EBUSY;
  table_.destroy(CompChannel::of(channel));
  return 0;
}

}  // namespace verbena::adapter
