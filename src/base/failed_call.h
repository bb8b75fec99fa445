// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/format.h"
#include "base/log.h"

namespace verbena {

// VERBENA_LOG=error: one sentence for each call of a C ABI that failed, with the function that the program
// called, the errno value and the reason. The code that finds the reason gives it to because(). The frame of
// the call (c_abi.h) writes the sentence. Calls that our own code makes inside a call of the program write
// nothing: their reason becomes that of the program's call if this fails with the same errno value.
// Everything here concerns the calling thread. Without VERBENA_LOG it costs one load.

// A thread's calls of the C ABIs. Plain memory: a thread that ends has nothing to destroy, and may still
// call.
struct CallRecord {
  uint32_t open;  // how many calls are open: more than one if a call makes others
  // The last reason and the last object, each with the errno value that it goes with.
  int reason_code, subject_code;
  uint32_t reason_length, subject_length;
  char reason[240];
  char subject[120];
};

// For because() and concerning(). Longer texts are cut.
void keep_reason(int code, fmt::string_view words, fmt::format_args arguments) noexcept;
void keep_subject(int code, fmt::string_view words, fmt::format_args arguments) noexcept;

// Returns `code`, so that it stands where an errno value would: `return because(EINVAL, "...", ...)`.
template <class... Args>
[[gnu::cold]] int because(int code, fmt::format_string<Args...> words, const Args&... arguments) noexcept {
  if (log_level() >= LogLevel::kError) keep_reason(code, words, fmt::make_format_args(arguments...));
  return code;
}

// Says which object the call is about, in front of the reason: a queue pair, its device and port. Returns
// `code`.
template <class... Args>
[[gnu::cold]] int concerning(int code, fmt::format_string<Args...> words, const Args&... arguments) noexcept {
  if (log_level() >= LogLevel::kError) keep_subject(code, words, fmt::make_format_args(arguments...));
  return code;
}

// The reason that the call in progress has found for `code`, else the usual cause. Empty: neither is known.
// Valid until the thread's next call.
std::string_view reason_of(int code) noexcept;

// One call, as long as it lasts. An earlier reason is not its own.
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

// Keeps the reason and the object of a failure while what was made until then is given back, by calls of the
// C ABI, too.
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

// A call has failed and is no longer open. `call`: its function, by the name that programs know, or by that
// of the function behind a pointer of ibv_context, without "ibv_". Writes nothing inside another call, nor
// for codes that are no failure, such as EAGAIN. Answers to questions, such as that a GID table's entry is
// empty, are written at the level "info".
void say_call_failed(const char* call, int code) noexcept;

}  // namespace verbena

// libibverbs keeps the record for the other libraries, too: a call of librdmacm's makes calls of libibverbs'.
// Absent in programs without it, which then keep their own.
extern "C" [[gnu::weak]] verbena::CallRecord* verbena_call_record() noexcept;
