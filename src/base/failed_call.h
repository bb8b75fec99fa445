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
// program's call write nothing. The reason of an inner call becomes the reason of the program's call if both
// fail with the same errno value. All state is per thread. Without VERBENA_LOG each of these functions costs
// one load.

// The state of the calling thread's C ABI calls. Trivially destructible, because a thread may still call
// while its thread-local objects are destroyed.
struct CallRecord {
  uint32_t open;  // the number of open calls: more than one if a call makes others
  // The last reason (because()) and the last object (concerning()), each with its errno value.
  int reason_code, subject_code;
  uint32_t reason_length, subject_length;
  char reason[240];
  char subject[120];
};

// Implement because() and concerning(): format the text into the calling thread's record. Texts longer than
// the record's fields are cut.
void keep_reason(int code, fmt::string_view words, fmt::format_args arguments) noexcept;
void keep_subject(int code, fmt::string_view words, fmt::format_args arguments) noexcept;

// Records the reason of a failure. Returns `code`, so it can replace an errno value: `return because(EINVAL,
// "...", ...)`.
template <class... Args>
[[gnu::cold]] int because(int code, fmt::format_string<Args...> words, const Args&... arguments) noexcept {
  if (log_level() >= LogLevel::kError) keep_reason(code, words, fmt::make_format_args(arguments...));
  return code;
}

// Records the object of a failed call, such as a queue pair with its device and port. The log shows the
// object before the reason. Returns `code`.
template <class... Args>
[[gnu::cold]] int concerning(int code, fmt::format_string<Args...> words, const Args&... arguments) noexcept {
  if (log_level() >= LogLevel::kError) keep_subject(code, words, fmt::make_format_args(arguments...));
  return code;
}

// Returns the reason recorded in the current call for `code`, else the usual cause of that errno value. Empty
// if neither is known. Valid until the thread's next call.
std::string_view reason_of(int code) noexcept;

// Scope of one C ABI call. The constructor clears the reason and object that earlier calls recorded.
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

// Scope that saves the recorded reason and object, and restores them at its end. Use while a failed operation
// is undone, since the undo may itself make C ABI calls.
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

// Logs that a C ABI call has failed, with the recorded object and reason. Called after the call's OpenCall
// has ended. `call`: the function's name as programs know it, or without "ibv_" for a function behind a
// pointer of ibv_context. Writes nothing inside another call, nor for codes that are no failure: EINTR,
// EINPROGRESS, and EAGAIN except from calls that create an object. Codes that answer a question, such as
// "this GID table entry is empty", are logged at level "info".
void say_call_failed(const char* call, int code) noexcept;

}  // namespace verbena

// Returns the calling thread's record, which libibverbs defines for all our libraries: librdmacm's calls make
// calls of libibverbs. The address is null in programs without libibverbs; each library then keeps its own
// record.
extern "C" [[gnu::weak]] verbena::CallRecord* verbena_call_record() noexcept;
