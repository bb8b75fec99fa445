// SPDX-License-Identifier: Apache-2.0
#include "base/failed_call.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace verbena {
namespace {

template <size_t kBytes>
struct Words {
  char bytes[kBytes];
  size_t length;

  void write(fmt::string_view words, fmt::format_args arguments) noexcept {
    try {
      length = fmt::vformat(words, arguments).copy(bytes, kBytes);
    } catch (...) {
      length = 0;
    }
  }
  std::string_view get() const { return {bytes, length}; }
};
// Plain memory: a thread that ends has nothing to destroy, and may still call.
constinit thread_local Words<240> kept{};  // empty: the usual cause has to do
constinit thread_local Words<120> subject{};

void forget() {
  kept.length = 0;
  subject.length = 0;
}

// Where nobody has told a reason: the likeliest.
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

// What a program that does not wait gets again and again.
bool is_failure(int code) {
  return code != 0 && code != EAGAIN && code != EWOULDBLOCK && code != EINTR && code != EINPROGRESS;
}

// The functions behind ibv_context's pointers are called as those of the ABI, without what these begin with.
// rsockets' names are one word each.
std::string_view family_of(std::string_view call) {
  constexpr std::string_view kFamilies[] = {"ibv_", "rdma_", "umad_", "mlx5dv_", "efadv_"};
  const bool is_whole =
      std::ranges::any_of(kFamilies, [&](std::string_view family) { return call.starts_with(family); });
  return is_whole || call.find('_') == std::string_view::npos ? "" : "ibv_";
}

}  // namespace

void keep_reason(fmt::string_view words, fmt::format_args arguments) noexcept {
  kept.write(words, arguments);
}

void keep_subject(fmt::string_view words, fmt::format_args arguments) noexcept {
  subject.write(words, arguments);
}

void forget_reason() noexcept {
  if (log_level() >= LogLevel::kError) forget();
}

void say_call_failed(const char* call, int code) noexcept {
  if (log_level() < LogLevel::kError || !is_failure(code)) return;
  const int before = errno;
  const std::string_view why = kept.length > 0 ? kept.get() : usual_cause(code);
  const char* name = ::strerrorname_np(code);
  log_error("{}{}() failed, {} ({}){}{}{}{}", family_of(call), call, name != nullptr ? name : "?",
            ::strerrordesc_np(code) != nullptr ? ::strerrordesc_np(code) : "unknown",
            subject.length > 0 ? ": " : "", subject.get(), why.empty() ? "" : ": ", why);
  forget();
  errno = before;
}

}  // namespace verbena
