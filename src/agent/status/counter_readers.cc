// SPDX-License-Identifier: Apache-2.0
#include "agent/status/counter_readers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/inotify.h>
#include <unistd.h>

#include "base/log.h"

namespace verbena::agent {

CounterReaders::CounterReaders() : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (!fd_) log_warning("no inotify (errno {}): counters in files are renewed once a second only", errno);
}

void CounterReaders::watch(const std::string& folder) {
  if (fd_ && ::inotify_add_watch(fd_.get(), folder.c_str(), IN_OPEN | IN_CLOSE | IN_ONLYDIR) < 0) {
    log_info("readers of {} are not noticed: errno {}", folder, errno);
  }
}

void CounterReaders::take_news() {
  alignas(inotify_event) char buffer[16 << 10];
  const ssize_t bytes = ::read(fd_.get(), buffer, sizeof buffer);
  inotify_event event;
  for (ssize_t at = 0; at < bytes; at += static_cast<ssize_t>(sizeof event + event.len)) {
    std::memcpy(&event, buffer + at, sizeof event);
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      open_.clear();
    } else if ((event.mask & IN_IGNORED) != 0) {
      open_.erase(event.wd);  // its files may stay open, but do not change any more
    } else if ((event.mask & IN_ISDIR) == 0) {
      // The writer's own opens and closes add up to zero.
      int64_t& open = open_[event.wd];
      open = std::max<int64_t>(0, open + ((event.mask & IN_OPEN) != 0 ? 1 : -1));
    }
  }
}

bool CounterReaders::any() const {
  return std::any_of(open_.begin(), open_.end(), [](const auto& folder) { return folder.second > 0; });
}

}  // namespace verbena::agent
