// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "libraries/librdmacm/abi.h"
#include "libraries/librdmacm/failure_words.h"
#include "libraries/librdmacm/identifier.h"
#include "libraries/librdmacm/process.h"

namespace verbena::rdmacm {

// The logged reason if a call needs a device and the identifier has none.
inline constexpr char kNoDevice[] = "id has no device: rdma_resolve_addr() or rdma_bind_addr() gives it one";

inline constexpr char kNoIdentifier[] = "rdma_cm_id {} was destroyed, or never existed";

// Runs a call about an identifier: returns 0, or -1 and the errno value that body(identifier) returned. Sets
// EINVAL if `id` is null or no live identifier, ENODEV if the identifier belongs to the parent process. Sets
// ECONNRESET if the identifier was lost with the agent that knew it.
template <class Body>
int answer_for(rdma_cm_id* id, Body&& body, const char* call = __builtin_FUNCTION()) {
  return answer(
      [&] {
        if (id == nullptr) return because(EINVAL, "the rdma_cm_id is null");
        if (!Identifier::is_one(id)) return because(EINVAL, kNoIdentifier, verbena::ptr(id));
        Identifier& identifier = Identifier::of(id);
        if (!identifier.process.is_current())
          return because(ENODEV,
                         "the rdma_cm_id is the parent process's, from before fork(): create another");
        if (identifier.current_state() == State::kLost)
          return because(ECONNRESET, "the agent that knew of the rdma_cm_id has ended: create another");
        const int code = body(identifier);
        explain_failure(identifier, call, code);
        return code;
      },
      call);
}

}  // namespace verbena::rdmacm
