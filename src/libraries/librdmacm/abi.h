// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <utility>

#include "base/c_abi.h"

namespace verbena::rdmacm {

using verbena::answer_pointer;
using verbena::because;
using verbena::KeptReason;
using verbena::without_exceptions;

// The form of nearly every call here: 0, or -1 and errno.
template <class Body>
int answer(Body&& body, const char* call = __builtin_FUNCTION()) {
  return answer_minus_one(std::forward<Body>(body), call);
}

// What a function of libibverbs answered, as an errno value: some give it, some give -1 and set errno.
inline int verbs_error(int answered) {
  if (answered >= 0) return answered;
  return errno != 0 ? errno : EIO;
}

// The errno value of a Result that says no more than whether it worked.
template <class T>
int error_of(const Result<T>& result) {
  return result ? 0 : result.error().code;
}

}  // namespace verbena::rdmacm
