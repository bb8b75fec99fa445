// SPDX-License-Identifier: Apache-2.0

#include "adapter/objects/software_context.h"
#include "base/failed_call.h"
#include "base/log.h"

namespace verbena::adapter {
namespace {

// Longer than a waiting thread takes to leave when it was told to.
constexpr Duration kPatience = std::chrono::seconds(1);

}  // namespace

Result<ibv_comp_channel*> SoftwareContext::create_comp_channel() {
  if (device_->is_gone()) return fail(EIO);
  auto events = queues::EventChannel::create();
  if (!events) return tl::unexpected(events.error());
  auto channel = std::make_unique<CompChannel>(*device_);
  channel->fd = (*events)->fd();
  channel->refcnt = 0;
  channel->events = std::move(*events);
  return channels_.add(std::move(channel));
}

int SoftwareContext::destroy_comp_channel(ibv_comp_channel* channel) {
  CompChannel& object = CompChannel::of(channel);
  if (object.has_users()) return because(EBUSY, "completion queues use it");
  object.retire();
  channels_.destroy(object);
  return 0;
}

void CompChannel::retire() {
  if (owner.inherited()) return;
  if (!events->dismiss_waiter(kPatience)) {
    log_warning("a completion channel goes away while a thread waits for its events");
  }
}

}  // namespace verbena::adapter
