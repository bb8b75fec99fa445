// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <type_traits>

#include "base/c_abi.h"
#include "libraries/librdmacm/events.h"
#include "libraries/librdmacm/process.h"

namespace verbena::rdmacm {

using verbena::answer_pointer;
using verbena::because;
using verbena::KeptReason;
using verbena::without_exceptions;

// Runs a call that returns 0, or -1 and errno, as nearly every function of librdmacm does.
template <class Body>
int answer(Body&& body, const char* call = __builtin_FUNCTION()) {
  return answer_minus_one(std::forward<Body>(body), call);
}

// Converts the result of a libibverbs function to an errno value. Some of these functions return an errno
// value, others return -1 and set errno.
inline int verbs_error(int answered) {
  if (answered >= 0) return answered;
  return errno != 0 ? errno : EIO;
}

// Returns the errno value of a Result; 0 for success.
template <class T>
int error_of(const Result<T>& result) {
  return result ? 0 : result.error().code;
}

// Implements a C function that returns a number, or -1 with errno set. Runs `body`, which returns a Result of
// the number, and converts the Result. For Result<void>, the number is 0.
template <class Number = int, class Body>
Number answer_number(Body&& body, const char* call = __builtin_FUNCTION()) {
  Number number{};
  const int answered = answer(
      [&] {
        const auto result = body();
        if constexpr (!std::is_void_v<typename std::decay_t<decltype(result)>::value_type>) {
          if (result) number = static_cast<Number>(*result);
        }
        return error_of(result);
      },
      call);
  return answered == 0 ? number : static_cast<Number>(-1);
}

// The logged reason if a call needs a device and the identifier has none.
inline constexpr char kNoDevice[] = "id has no device: rdma_resolve_addr() or rdma_bind_addr() gives it one";

inline constexpr char kNoIdentifier[] = "rdma_cm_id {} was destroyed, or never existed";

// Implements a C function about an identifier: runs body(identifier), which returns 0 or an errno value.
// Returns 0, or -1 with errno set, and logs the failure. Does not run `body` in three cases: EINVAL if `id`
// is null or no live identifier; ENODEV if the identifier belongs to the parent process; ECONNRESET if the
// agent died and the identifier could not be restored (State::kLost).
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
