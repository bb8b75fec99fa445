// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/hangup_watch.h"

#include <array>
#include <cerrno>
#include <cstdint>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

constexpr int kPatience = 1000;  // milliseconds

}  // namespace

HangupWatch::HangupWatch(int descriptor, std::chrono::milliseconds limit) {
  if (descriptor < 0) return;
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  thread_ = std::jthread([this, descriptor, limit] { watch(descriptor, limit); });
}

HangupWatch::~HangupWatch() {
  const std::uint64_t one = 1;
  if (stop_ && ::write(stop_.get(), &one, sizeof one) < 0) std::terminate();  // an eventfd takes a one
}

void HangupWatch::watch(int descriptor, std::chrono::milliseconds limit) const {
  std::array<pollfd, 2> watched{{{stop_.get(), POLLIN, 0}, {descriptor, POLLRDHUP, 0}}};
  int events = 0;
  do {
    events = ::poll(watched.data(), watched.size(), static_cast<int>(limit.count()));
  } while (events < 0 && errno == EINTR);
  if (watched[0].revents != 0) return;
  if (events != 0 && ::poll(watched.data(), 1, kPatience) != 0) return;
  rdma_core::complain(events != 0 ? "the peer has ended during a test" : "the peer takes too long");
  ::_exit(1);
}

}  // namespace verbena::perf
