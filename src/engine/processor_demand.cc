// SPDX-License-Identifier: Apache-2.0
#include "engine/processor_demand.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

namespace verbena::engine {
namespace {

constexpr Duration kValidity = std::chrono::microseconds(50);
// The kernel adds the figure up over all processors: where there are hundreds it is asked the more rarely.
constexpr int kMostPart = 50;

int processors_allowed() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

void ProcessorDemand::look_again() {
  processors_ = processors_allowed();
  if (!loadavg_) loadavg_ = UniqueFd(::open(path_, O_RDONLY | O_CLOEXEC));
}

bool ProcessorDemand::wanted(TimePoint now) {
  if (now < valid_until_) return wanted_;
  std::array<char, 128> text;
  const ssize_t length = loadavg_ ? ::pread(loadavg_.get(), text.data(), text.size(), 0) : -1;
  const int runnable = length <= 0 ? -1 : runnable_in({text.data(), static_cast<size_t>(length)});
  wanted_ = runnable < 0 || runnable > processors_;
  valid_until_ = now + std::max(kValidity, kMostPart * (MonotonicClock::now() - now));
  return wanted_;
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
