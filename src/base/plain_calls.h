// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ctime>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena {

// Like socket(2), but bypasses preloaded libraries by a bare system call. librspreload turns every internet
// socket into an rsocket, and an rsocket itself needs real sockets. (Do not use plain_socket() for the
// process's first socket, the one to the agent: librspreload initializes itself in socket(2), and its other
// calls rely on that.)
inline int plain_socket(int domain, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
}

// poll(2) and epoll(7) that bypass preloaded libraries. The librspreload of rdma-core 65 redirects these
// calls to rsockets, so an rsocket that used them would call itself recursively.

// Like poll(2), but calls ppoll(2), which librspreload does not redirect. A cancellation point.
inline int plain_poll(pollfd* entries, nfds_t count, int timeout_ms) {
  const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return ::ppoll(entries, count, timeout_ms < 0 ? nullptr : &timeout, nullptr);
}

// Like epoll_wait(2), but calls epoll_pwait(2), which librspreload does not redirect. A cancellation point.
// `room`: the capacity of `events`.
inline int plain_epoll_wait(int set, epoll_event* events, size_t room, int timeout_ms) {
  return ::epoll_pwait(set, events, static_cast<int>(room), timeout_ms, nullptr);
}

// Like epoll_create1(2) with EPOLL_CLOEXEC, by a bare system call.
inline int plain_epoll_create() {
#if defined(__SANITIZE_THREAD__)  // the sanitizer derives happens-before from the epoll calls
  return ::epoll_create1(EPOLL_CLOEXEC);
#else
  return static_cast<int>(::syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
#endif
}

// Like epoll_ctl(2), by a bare system call.
inline int plain_epoll_ctl(int set, int operation, int fd, epoll_event* event) {
#if defined(__SANITIZE_THREAD__)
  return ::epoll_ctl(set, operation, fd, event);
#else
  return static_cast<int>(::syscall(SYS_epoll_ctl, set, operation, fd, event));
#endif
}

// Keeps a descriptor in an epoll set; the destructor removes the descriptor by EPOLL_CTL_DEL. Closing the
// descriptor is not enough. While another process has an inherited copy, as a child between fork() and exec()
// has, the set would go on to report the file's events.
//
// Declare the PollEntry after the descriptor, so that the PollEntry is destroyed first.
class PollEntry {
 public:
  PollEntry() = default;
  ~PollEntry() { leave(); }
  PollEntry(const PollEntry&) = delete;
  PollEntry& operator=(const PollEntry&) = delete;

  // Adds `fd` to the set for EPOLLIN, with `data`. Returns false on error, with errno. REQUIRES: the set
  // outlives this object, or forget() is called
  bool join(int set, int fd, void* data) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = data;
    if (plain_epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) return false;
    set_ = set;
    fd_ = fd;
    return true;
  }
  // Leaves the set. Called before another thread may close the descriptor.
  void leave() {
    if (set_ >= 0) plain_epoll_ctl(set_, EPOLL_CTL_DEL, fd_, nullptr);
    set_ = -1;
  }
  // For a child after fork(), where the set is shared with the parent: makes the destructor leave the set as
  // it is.
  void forget() { set_ = -1; }

 private:
  int set_ = -1;
  int fd_ = -1;
};

}  // namespace verbena
