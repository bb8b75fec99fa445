// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/queues/event_channel.h"

namespace verbena::adapter {

// Takes the oldest asynchronous event from the channel (ibv_get_async_event(3)). Blocks while there is none,
// unless the channel's descriptor is O_NONBLOCK. Returns 0 or an errno value.
int get_async_event(queues::EventChannel& channel, ibv_async_event* event);

// Acknowledges the event (ibv_ack_async_event(3)). The call that destroys the event's object waits for this.
// For events of the port, nothing happens.
void acknowledge_async_event(const ibv_async_event& event);

}  // namespace verbena::adapter
