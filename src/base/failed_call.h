// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/format.h"
#include "base/log.h"

namespace verbena {

// Error log (VERBENA_LOG=error): one sentence for each failed call of a C ABI, with the function that the
// program called, the errno value and the reason. The code that detects the failure passes the reason to
// because(). The wrapper of the call (c_abi.h) writes the sentence. Calls that our code makes inside a
// program's call write nothing: their reason becomes that of the program's call if this fails with the same
// errno value. All state is per thread. Without VERBENA_LOG it costs one load.

// The state of the calling thread's C ABI calls. Trivially destructible, because a thread may still call
// while its thread-local objects are destroyed.
struct CallRecord {
  uint32_t open;  // the number of open calls: more than one if a call makes others
  // The last reason and the last object, each with its errno value.
  int reason_code, subject_code;
  uint32_t reason_length, subject_length;
  char reason[240];
  char subject[120];
};

// Implement because() and concerning(). Longer texts are cut.
void keep_reason(int code, fmt::string_view words, fmt::format_args arguments) noexcept;
void keep_subject(int code, fmt::string_view words, fmt::format_args arguments) noexcept;

// Records the reason of a failure. Returns `code`, so it can replace an errno value: `return because(EINVAL,
// "...", ...)`.
template <class... Args>
[[gnu::cold]] int because(int code, fmt::format_string<Args...> words, const Args&... arguments) noexcept {
  if (log_level() >= LogLevel::kError) keep_reason(code, words, fmt::make_format_args(arguments...));
  return code;
}

// Records the object of a failed call, such as a queue pair with its device and port. It is printed before
// the reason. Returns `code`.
template <class... Args>
[[gnu::cold]] int concerning(int code, fmt::format_string<Args...> words, const Args&... arguments) noexcept {
  if (log_level() >= LogLevel::kError) keep_subject(code, words, fmt::make_format_args(arguments...));
  return code;
}

// The reason recorded in the current call for `code`, else the usual cause of that errno. Empty if neither is
// known. Valid until the thread's next call.
std::string_view reason_of(int code) noexcept;

// Scope of one C ABI call. Clears the reason of earlier calls.
class OpenCall {
 public:
  OpenCall() noexcept : record_(log_level() >= LogLevel::kError ? open() : nullptr) {}
  ~OpenCall() {
    if (record_ != nullptr) [[unlikely]]
      --record_->open;
  }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;

 private:
  static CallRecord* open() noexcept;

  CallRecord* const record_;
};

// Scope that saves the recorded reason and object while a failed operation is undone. The undo may itself
// make C ABI calls.
class KeptReason {
 public:
  KeptReason() noexcept : record_(log_level() >= LogLevel::kError ? take(kept_) : nullptr) {}
  ~KeptReason();
  KeptReason(const KeptReason&) = delete;
  KeptReason& operator=(const KeptReason&) = delete;

 private:
  static CallRecord* take(CallRecord& kept) noexcept;

  CallRecord kept_;  // written only if errors are logged
  CallRecord* const record_;
};

// Logs that a call has failed and is no longer open. `call`: the function's name as programs know it, or
// without "ibv_" for a function behind a pointer of ibv_context. Writes nothing inside another call, nor for
// codes that are no failure, such as EAGAIN. Codes that answer a question, such as "this GID table entry is
// empty", are logged at level "info".
void say_call_failed(const char* call, int code) noexcept;

}  // namespace verbena

// Returns the thread's record in libibverbs, which the other libraries share, since librdmacm's calls make
// calls of libibverbs. Absent in programs without libibverbs: each library then keeps its own record.
extern "C" [[gnu::weak]] verbena::CallRecord* verbena_call_record() noexcept;
