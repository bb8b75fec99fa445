// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rdmacm/abi.h"
#include "rdmacm/identifier.h"
#include "rdmacm/process.h"

namespace verbena::rdmacm {

// The frame of a call about an identifier: body(identifier) answers an errno value. ENODEV: it is that of a
// parent process; ECONNRESET: it went with the agent that knew it.
template <class Body>
int answer_for(rdma_cm_id* id, Body&& body) {
  return answer([&] {
    if (id == nullptr) return EINVAL;
    Identifier& identifier = Identifier::of(id);
    if (!identifier.process.is_current()) return ENODEV;
    if (identifier.current_state() == State::kLost) return ECONNRESET;
    return body(identifier);
  });
}

}  // namespace verbena::rdmacm
