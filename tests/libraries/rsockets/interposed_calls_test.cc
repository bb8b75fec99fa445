// SPDX-License-Identifier: Apache-2.0
// rsockets under a preload that replaces functions of the C library, as librspreload does.
#include <atomic>
#include <cerrno>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libraries/rsockets/support/rsockets.h"

namespace {

// While an object of Forbidden lives, rsockets must not make these calls.
std::atomic<bool> are_forbidden{false};
std::atomic<int> forbidden_calls{0};

struct Forbidden {
  Forbidden() { are_forbidden = true; }
  ~Forbidden() { are_forbidden = false; }
};

template <class... Arguments>
int call(long number, Arguments... arguments) {
  if (are_forbidden) ++forbidden_calls;
  return static_cast<int>(::syscall(number, arguments...));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int poll(pollfd* entries, nfds_t count, int timeout) {
  return call(SYS_poll, entries, count, timeout);
}
int epoll_create1(int flags) {
  return call(SYS_epoll_create1, flags);
}
int epoll_ctl(int set, int operation, int fd, epoll_event* event) {
  return call(SYS_epoll_ctl, set, operation, fd, event);
}
int epoll_wait(int set, epoll_event* events, int room, int timeout) {
  return call(SYS_epoll_pwait, set, events, room, timeout, nullptr, 8);
}

}  // extern "C"
#pragma GCC visibility pop

namespace verbena::rsockets::testing {
namespace {

TEST(InterposedCalls, AreNotMadeByStreams) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers have put theirs in place of them";
#endif
  const Forbidden calls;
  Pair pair;
  EXPECT_EQ(poll_for(pair.server, POLLIN, 20), 0);
  std::thread sender([&] { send_text(pair.client, "x"); });
  EXPECT_EQ(poll_for(pair.server, POLLIN), POLLIN);
  sender.join();
  EXPECT_EQ(forbidden_calls, 0);
}

}  // namespace
}  // namespace verbena::rsockets::testing
