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

}  // namespace verbena::rdmacm
