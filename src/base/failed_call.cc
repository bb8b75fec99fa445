// SPDX-License-Identifier: Apache-2.0
#include "base/failed_call.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace verbena {
namespace {

constinit thread_local CallRecord own_record{};

CallRecord& record() {
  return verbena_call_record != nullptr ? *verbena_call_record() : own_record;
}

void forget(CallRecord& calls) {
  calls.reason_length = calls.subject_length = 0;
}

// Formats into `to` and returns the length; longer texts are cut.
template <size_t kBytes>
uint32_t write(fmt::string_view words, fmt::format_args arguments, char (&to)[kBytes]) noexcept {
  try {
    return static_cast<uint32_t>(verbena::vformat(words, arguments).copy(to, kBytes));
  } catch (...) {
    return 0;  // fall back to the usual cause
  }
}

// The most likely cause of an errno value, used if because() was not called.
struct UsualCause {
  int code;
  std::string_view words;
};
constexpr UsualCause kUsualCauses[] = {
    {EINVAL, "an argument is null, of another device, out of its range, or was destroyed"},
    {ENOMEM, "no memory, or a limit of objects is reached ('verbena doctor' shows the limits)"},
    {EOPNOTSUPP, "this is not supported here (" VERBENA_DOCDIR "/verbs.md)"},
    {ENOSYS, "this is not supported here (" VERBENA_DOCDIR "/verbs.md)"},
    {EBUSY, "something that was made with it still uses it"},
    {ENODEV, "there is no such device, or its network device is gone ('verbena doctor' looks for the cause)"},
    {EIO, "the device is gone: its link or network device was removed"},
    {EPERM, "the user may not"},
    {EACCES, "the user may not"},
    {EFAULT, "an address does not lie in the program's memory, or may not be written to"},
    {EAGAIN, "no thread can be started: the user's limit (ulimit -u) or the cgroup's (pids.max) is reached"},
    {EMFILE, "the process has as many open files as it may have (ulimit -n)"},
    {ENFILE, "the system has as many open files as it may have"},
    {ECONNRESET, "the agent that knew of it has ended"},
    {ECONNREFUSED, "nobody listens there, or the peer has said no"},
    {ETIMEDOUT, "nobody has answered: is the peer there, and UDP port 4791 open ('verbena doctor')?"},
    {EADDRINUSE, "another listens there already"},
    {EADDRNOTAVAIL, "no link has this address ('verbena status' shows the links)"},
    {ENOENT, "there is no such object: it was destroyed, or never was"},
};

std::string_view usual_cause(int code) {
  const auto found = std::ranges::find(kUsualCauses, code, &UsualCause::code);
  return found != std::end(kUsualCauses) ? found->words : "";
}

// Whether the call creates an object. There EAGAIN is an error: no thread could be started. From other calls
// it is normal, and non-blocking programs get it again and again.
bool makes_something(std::string_view call) {
  constexpr std::string_view kVerbs[] = {"open_device", "import_device", "create_", "alloc_", "reg_"};
  return std::ranges::any_of(kVerbs, [&](std::string_view verb) { return call.find(verb) != call.npos; });
}

bool is_failure(std::string_view call, int code) {
  if (code == EAGAIN) return makes_something(call);
  return code != 0 && code != EINTR && code != EINPROGRESS;
}

// Calls with which programs ask whether something exists: the answer "no" is no error.
struct Question {
  std::string_view call;
  int no;  // the errno that means "no"; 0: any
};
constexpr Question kQuestions[] = {
    {"ibv_query_gid_ex", ENODATA},  // perftest and ibv_devinfo go through all entries of the GID table
    {"ibv_query_gid_type", ENODATA}, {"ibv_query_ece", EOPNOTSUPP}, {"ibv_set_ece", EOPNOTSUPP},
    {"ibv_read_sysfs_file", 0},  // ibv_devinfo reads files that only some devices have
};

LogLevel level_of(std::string_view call, int code) {
  const bool is_answer = std::ranges::any_of(kQuestions, [&](const Question& question) {
    return question.call == call && (question.no == 0 || question.no == code);
  });
  return is_answer ? LogLevel::kInfo : LogLevel::kError;
}

// The prefix that completes the name of a call for the log. The functions behind ibv_context's pointers lack
// "ibv_". Names of rsockets are one word and need no prefix.
std::string_view family_of(std::string_view call) {
  constexpr std::string_view kFamilies[] = {"ibv_", "rdma_", "umad_", "mlx5dv_", "efadv_"};
  const bool is_whole =
      std::ranges::any_of(kFamilies, [&](std::string_view family) { return call.starts_with(family); });
  return is_whole || call.find('_') == std::string_view::npos ? "" : "ibv_";
}

}  // namespace

CallRecord* OpenCall::open() noexcept {
  CallRecord& calls = record();
  ++calls.open;
  forget(calls);
  return &calls;
}

CallRecord* KeptReason::take(CallRecord& kept) noexcept {
  kept = record();
  return &record();
}

KeptReason::~KeptReason() {
  if (record_ == nullptr) return;
  const uint32_t open = record_->open;
  *record_ = kept_;
  record_->open = open;
}

void keep_reason(int code, fmt::string_view words, fmt::format_args arguments) noexcept {
  CallRecord& calls = record();
  calls.reason_length = write(words, arguments, calls.reason);
  calls.reason_code = code;
}

void keep_subject(int code, fmt::string_view words, fmt::format_args arguments) noexcept {
  CallRecord& calls = record();
  calls.subject_length = write(words, arguments, calls.subject);
  calls.subject_code = code;
}

std::string_view reason_of(int code) noexcept {
  const CallRecord& calls = record();
  if (calls.reason_length > 0 && calls.reason_code == code) return {calls.reason, calls.reason_length};
  return usual_cause(code);
}

void say_call_failed(const char* call, int code) noexcept {
  if (log_level() < LogLevel::kError || !is_failure(call, code)) return;
  if (*call == '_') ++call;  // verbs.h calls _ibv_query_gid_ex() for ibv_query_gid_ex()
  CallRecord& calls = record();
  if (calls.open > 0) return;
  const int before = errno;
  const std::string_view subject(calls.subject, calls.subject_code == code ? calls.subject_length : 0);
  const std::string_view why = reason_of(code);
  const char* name = ::strerrorname_np(code);
  log(level_of(call, code), "{}{}() failed, {} ({}){}{}{}{}", family_of(call), call,
      name != nullptr ? name : "?", ::strerrordesc_np(code) != nullptr ? ::strerrordesc_np(code) : "unknown",
      subject.empty() ? "" : ": ", subject, why.empty() ? "" : ": ", why);
  forget(calls);
  errno = before;
}

}  // namespace verbena
