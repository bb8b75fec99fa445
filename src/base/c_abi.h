// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include <cxxabi.h>

#include "base/cancellation_off.h"
#include "base/failed_call.h"
#include "base/log.h"
#include "base/result.h"

// Marks an exported function of a C ABI. Its symbol version comes from the library's map file.
#define VERBENA_ABI extern "C" __attribute__((visibility("default")))

// Defines a function of a C ABI that only newer headers declare. The function is in a namespace, takes our
// copies of newer structs, and has the C name as its assembler name. So it does not conflict with a
// declaration in the build's headers. Use: VERBENA_NEWER_ABI(int, name, int argument) { ... }
#define VERBENA_NEWER_ABI(type, name, ...)                                      \
  __attribute__((visibility("default"))) type name(__VA_ARGS__) __asm__(#name); \
  type name(__VA_ARGS__)

namespace verbena {

// Runs `body` and returns its errno value, or 0. Converts exceptions to errno values: std::bad_alloc to
// ENOMEM, a std::system_error to its code, all others to EIO. While `body` runs, pthread_cancel(3) can cancel
// the thread only within CancellationAllowed, because verbs calls are no cancellation points. Sleeps are an
// exception, because rping and many other programs cancel threads that sleep in ibv_get_cq_event() or
// rdma_get_cm_event(). The forced unwinding of a cancelled thread passes through this function. The catch
// clause for it binds a null reference, so the function has no_sanitize("null").
template <class Body>
__attribute__((noinline, no_sanitize("null"))) int without_exceptions(Body&& body) {
  const CancellationOff whole;
  const OpenCall call;
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

// Implements a C function that returns 0 or an errno value: runs `body` by without_exceptions(). On failure
// also sets errno, as system calls do, and logs the failure. `call`: the function's name, for the log.
template <class Body>
int answer_code(Body&& body, const char* call = __builtin_FUNCTION()) {
  const int code = without_exceptions(std::forward<Body>(body));
  if (code == 0) return 0;
  say_call_failed(call, code);
  errno = code;
  return code;
}

// Implements a C function that returns 0, or -1 with errno. `body` returns 0 or an errno value, as in
// answer_code().
template <class Body>
int answer_minus_one(Body&& body, const char* call = __builtin_FUNCTION()) {
  return answer_code(std::forward<Body>(body), call) == 0 ? 0 : -1;
}

// Implements a C function that returns a pointer, or null with errno. `body` returns a Result<T*>. Logs
// failures as answer_code() does.
template <class Body>
auto answer_pointer(Body&& body, const char* call = __builtin_FUNCTION()) ->
    typename decltype(body())::value_type {
  typename decltype(body())::value_type pointer = nullptr;
  answer_code(
      [&] {
        auto result = body();
        if (!result) return result.error().code;
        pointer = *result;
        return 0;
      },
      call);
  return pointer;
}

}  // namespace verbena
