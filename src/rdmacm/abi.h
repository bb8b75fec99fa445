// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include <cxxabi.h>

#include "base/log.h"
#include "base/result.h"

// A function of the C ABI. Its version comes from librdmacm.map.
#define VERBENA_ABI extern "C" __attribute__((visibility("default")))

namespace verbena::rdmacm {

// Runs `body`, which returns an errno value, and lets no exception out. The one thing that passes is the
// forced unwinding by which pthread_cancel() ends a thread: rping cancels the one that sleeps in
// rdma_get_cm_event(). It is caught by a reference to nothing, to which the sanitizer would object.
template <class Body>
__attribute__((noinline, no_sanitize("null"))) int without_exceptions(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::system_error& error) {
    return error.code().value() != 0 ? error.code().value() : EIO;
  } catch (const std::exception& error) {
    log_error("a call failed unexpectedly: {}", error.what());
    return EIO;
  } catch (...) {
    return EIO;
  }
}

// The form of nearly every call here: 0, or -1 and errno.
template <class Body>
int answer(Body&& body) {
  const int code = without_exceptions(std::forward<Body>(body));
  if (code == 0) return 0;
  errno = code;
  return -1;
}

// For calls that return a pointer, or null and errno. `body` returns a Result<T*>.
template <class Body>
auto answer_pointer(Body&& body) -> typename decltype(body())::value_type {
  typename decltype(body())::value_type pointer = nullptr;
  answer([&] {
    auto result = body();
    if (!result) return result.error().code;
    pointer = *result;
    return 0;
  });
  return pointer;
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
