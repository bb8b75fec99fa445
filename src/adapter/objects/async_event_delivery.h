// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/queues/event_channel.h"

namespace verbena::adapter {

// Takes the oldest asynchronous event (ibv_get_async_event(3)). Blocks unless the channel's descriptor is
// O_NONBLOCK: 0, or the errno value that says why there is none.
int get_async_event(queues::EventChannel& channel, ibv_async_event* event);

// The application is done with it: its object may go.
void acknowledge_async_event(const ibv_async_event& event);

}  // namespace verbena::adapter
