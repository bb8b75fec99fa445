// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/queues/event_channel.h"

namespace verbena::adapter {

// Takes the oldest asynchronous event (ibv_get_async_event(3)). Blocks unless the channel's descriptor is
// O_NONBLOCK. Returns 0 or an errno value.
int get_async_event(queues::EventChannel& channel, ibv_async_event* event);

// Acknowledges the event (ibv_ack_async_event(3)), so that a call that destroys the event's object can
// return.
void acknowledge_async_event(const ibv_async_event& event);

}  // namespace verbena::adapter
