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

// The application's rdma_cm_event, from its delivery to its acknowledgement.
struct Event : rdma_cm_event {
  Event() : rdma_cm_event{} {}
  static Event& of(rdma_cm_event* event) { return *static_cast<Event*>(event); }

  // The identifier that waits for the acknowledgement; for a request: the listener.
  Identifier* owner = nullptr;
  uint32_t membership = 0;
  std::array<uint8_t, 256> private_data{};
};

// Returns the next event of a channel that the application should see, after process(). EAGAIN, EINTR: as
// with read(2).
Result<Event*> next_event(Channel& channel);
void acknowledge(Event& event);

// Does librdmacm's work for a message from the agent, and fills the event. False if the application should
// not see the event.
bool process(Event& event, const protocol::CmEvent& message, Identifier& identifier);

// Finishes a call that starts an operation. For a synchronous identifier, waits for the event that ends the
// operation. Returns an errno value.
int complete(Identifier& identifier);

}  // namespace verbena::rdmacm
