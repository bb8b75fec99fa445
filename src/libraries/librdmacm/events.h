// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <rdma/rdma_cma.h>

#include "base/result.h"
#include "control/protocol/connection_messages.h"
#include "libraries/librdmacm/identifier.h"

namespace verbena::rdmacm {

// What the application knows as rdma_cm_event, until it acknowledges it.
struct Event : rdma_cm_event {
  Event() : rdma_cm_event{} {}
  static Event& of(rdma_cm_event* event) { return *static_cast<Event*>(event); }

  Identifier* owner = nullptr;  // who waits for the acknowledgement; for a request: the listener
  uint32_t membership = 0;
  std::array<uint8_t, 256> private_data{};
};

// The next event of a channel that means something to the application, after doing what librdmacm does with
// it. EAGAIN, EINTR: as read(2).
Result<Event*> next_event(Channel& channel);
void acknowledge(Event& event);

// What rdma_get_cm_event() does with a message from the agent. False: the application is not to see it.
bool process(Event& event, const protocol::CmEvent& message, Identifier& identifier);

// The end of a call that starts something: for a synchronous identifier, the event that finishes it. An errno
// value.
int complete(Identifier& identifier);

}  // namespace verbena::rdmacm
