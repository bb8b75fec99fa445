// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/processor_demand.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "base/spin_lock.h"

namespace verbena::engine {
namespace {

constexpr Duration kValidity = std::chrono::microseconds(50);
// The kernel adds the figure up over all processors: where there are hundreds it is asked the more rarely.
constexpr int kMaxPart = 50;
// Until a second look. Many are gone by then: an engine thread that looks, a thread of the kernel's.
constexpr int kFewTimes = 5;
// How often it looks which processors the thread may use.
constexpr Duration kLooksAgain = std::chrono::seconds(1);

// Between two questions to the port the shard is free for others. A question takes about as long.
constexpr int kRelaxesBetweenAsks = 4;
// Where less than that is lost between two of them it was an interrupt, not somebody who wants the processor.
constexpr Duration kTakenAway = std::chrono::microseconds(50);

int processors_allowed() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

void ProcessorDemand::look_again() {
  processors_ = processors_allowed();
  thread_ = ::pthread_self();
  looks_again_at_ = MonotonicClock::now() + kLooksAgain;
  if (!loadavg_) loadavg_ = UniqueFd(::open(path_, O_RDONLY | O_CLOEXEC));
}

bool ProcessorDemand::wanted(TimePoint now) {
  if (now < valid_until_) return wanted_;
  std::array<char, 128> text;
  const ssize_t length = loadavg_ ? ::pread(loadavg_.get(), text.data(), text.size(), 0) : -1;
  const int runnable = length <= 0 ? -1 : runnable_in({text.data(), static_cast<size_t>(length)});
  const bool was_wanted = std::exchange(seems_wanted_, runnable < 0 || runnable > processors_);
  wanted_ = seems_wanted_ && was_wanted;
  const Duration took = MonotonicClock::now() - now;
  const bool is_final = wanted_ == seems_wanted_;
  valid_until_ = now + (is_final ? std::max(kValidity, kMaxPart * took) : kFewTimes * took);
  return wanted_;
}

Demand ProcessorDemand::pause() {
  const TimePoint began = MonotonicClock::now();
  if (began >= looks_again_at_ || ::pthread_equal(thread_, ::pthread_self()) == 0) look_again();
  for (int i = 0; i < kRelaxesBetweenAsks; ++i) cpu_relax();
  const bool is_wanted = wanted(began);
  const Duration took = MonotonicClock::now() - began;
  if (took >= kTakenAway) return {.looked = true, .wanted = true, .lost = took};
  return {.looked = true, .wanted = is_wanted};
}

int ProcessorDemand::runnable_in(std::string_view loadavg) {
  const size_t slash = loadavg.find('/');
  if (slash == std::string_view::npos) return -1;
  const size_t begin = loadavg.rfind(' ', slash) + 1;  // 0 without a space
  int runnable = -1;
  const auto [end, error] = std::from_chars(loadavg.data() + begin, loadavg.data() + slash, runnable);
  return error == std::errc() && end == loadavg.data() + slash ? runnable : -1;
}

}  // namespace verbena::engine
