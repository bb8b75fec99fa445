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

  // The identifier whose destruction waits for the acknowledgement; for a connection request, the listener.
  Identifier* owner = nullptr;
  uint32_t membership = 0;  // the number of the multicast membership; 0 for other events
  std::array<uint8_t, 256> private_data{};
};

// Waits for the next event of a channel that the application should see, and handles it with process(). The
// application must acknowledge() the returned event. Errors: those of Channel::next().
Result<Event*> next_event(Channel& channel);
void acknowledge(Event& event);

// Does librdmacm's work for an event message: updates the identifier, moves the QP to its next state, and
// fills `event`. Returns false if the application should not see the event.
bool process(Event& event, const protocol::CmEvent& message, Identifier& identifier);

// Finishes a call that starts an operation. For a synchronous identifier, waits for the event that ends the
// operation, and returns 0 or the errno value of its failure. For other identifiers, returns 0 at once.
int complete(Identifier& identifier);

}  // namespace verbena::rdmacm
